#include "cli/recipe_file.hpp"

#include <array>
#include <cstdio>
#include <filesystem>

#include "base/config/document.hpp"
#include "base/config/flags.hpp"

namespace tutti::cli {
namespace {

struct Declare {
  config::Flags& flags;

  void operator()(const char* name, std::int64_t& target, std::int64_t least, std::int64_t most,
                  const char* help) {
    flags.add(name, target, help, {.min = least, .max = most});
  }
  template <class T>
  void operator()(const char* name, T& target, const char* help) {
    flags.add(name, target, help);
  }
};

struct Describe {
  std::string& text;

  void row(const char* name, const std::string& value, const char* help) {
    std::array<char, 256> line{};
    std::snprintf(line.data(), line.size(), "  %-20s %-9s %s\n", name, value.c_str(), help);
    text += line.data();
  }
  void operator()(const char* name, const std::int64_t& value, std::int64_t, std::int64_t, const char* help) {
    row(name, std::to_string(value), help);
  }
  void operator()(const char* name, const double& value, const char* help) {
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "%g", value);
    row(name, number.data(), help);
  }
  void operator()(const char* name, const bool& value, const char* help) {
    row(name, value ? "true" : "false", help);
  }
  void operator()(const char* name, const std::string& value, const char* help) {
    row(name, value.empty() ? "-" : value, help);
  }
};

Result<> apply(config::Flags& keys, const std::string& setting) {
  const auto equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    return invalid("'" + setting + "' is no setting")
        .within("--set")
        .remedy("such as --set learning_rate=1e-3");
  }
  config::Value value{.kind = config::Value::Kind::scalar, .line = 1, .scalar = setting.substr(equals + 1)};
  config::Value root{.kind = config::Value::Kind::mapping, .line = 1};
  root.keys.push_back(setting.substr(0, equals));
  root.key_lines.push_back(1);
  root.items.push_back(std::move(value));
  return keys.read({"--set", std::move(root)});
}

void make_absolute(std::string& path) {
  if (!path.empty()) path = std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

Result<recipe::Recipe> read_recipe(const std::string& path, const std::vector<std::string>& settings) {
  recipe::Recipe recipe;
  config::Flags keys("train", "", "");
  recipe::visit_keys(recipe, Declare{keys});
  auto document = config::read_document(path);
  if (!document) return std::move(document).error();
  if (auto read = keys.read(*document); !read) return std::move(read).error();
  for (const std::string& setting : settings) {
    if (auto applied = apply(keys, setting); !applied) return std::move(applied).error();
  }
  if (auto fine = recipe::check(recipe); !fine) return std::move(fine).error().within(path);
  if (recipe.data.empty()) {
    return invalid("'data' is missing").within(path).remedy("`tutti data pack` makes a folder of data");
  }
  make_absolute(recipe.run);
  make_absolute(recipe.data);
  make_absolute(recipe.weights);
  const bool is_family = model::family_of(recipe.model).ok();
  if (!is_family) make_absolute(recipe.model);
  return recipe;
}

std::string describe_recipe_keys() {
  std::string text = "keys of a recipe, their defaults and meanings:\n";
  const recipe::Recipe defaults;
  recipe::visit_keys(defaults, Describe{text});
  return text;
}

}  // namespace tutti::cli
