#include "serve/load/pooling.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/json/parse.hpp"

namespace tutti::serve {
namespace {

constexpr std::string_view remedy =
    "--pooling mean or --pooling last makes vectors all the same, of another kind";

// Vectors have a length of 1 here whether the folder asks for it or not.
constexpr std::array<std::string_view, 3> known_modules{"Transformer", "Pooling", "Normalize"};

// What a vector goes through: "sentence_transformers.models.Dense" is a Dense.
Result<> check_modules(std::string_view text) {
  if (text.empty()) return {};
  const auto root = json::parse(text);
  if (!root || root->list() == nullptr) return invalid("modules.json is no list");
  for (const json::Value& module : *root->list()) {
    const json::Value* const type = module.find("type");
    if (type == nullptr || type->text() == nullptr) return invalid("a module of modules.json has no type");
    const std::string_view whole = *type->text();
    const std::string_view name = whole.substr(whole.rfind('.') + 1);
    if (std::ranges::find(known_modules, name) == known_modules.end())
      return invalid("its vectors go through a module that is not done here: '" +
                     std::string(name.substr(0, 64)) + "'");
  }
  return {};
}

// "pooling_mode_mean_tokens": true, or in newer files "pooling_mode": "mean".
Result<std::vector<std::string>> modes_of(std::string_view text) {
  const auto root = json::parse(text);
  if (!root || root->object() == nullptr) return invalid("1_Pooling/config.json is no object");
  std::vector<std::string> modes;
  for (const json::Member& member : *root->object()) {
    if (!member.key.starts_with("pooling_mode")) continue;
    if (member.value.text() != nullptr) modes.push_back(*member.value.text());
    if (member.value.boolean().value_or(false)) modes.push_back(member.key);
  }
  return modes;
}

}  // namespace

Result<Pooling> parse_pooling(std::string_view word) {
  if (word == "last") return Pooling::last;
  if (word == "mean") return Pooling::mean;
  return invalid("'" + std::string(word.substr(0, 64)) + "' is no pooling").remedy("mean or last");
}

Result<Pooling> read_pooling(std::string_view modules, std::string_view config) {
  if (auto fine = check_modules(modules); !fine) return std::move(fine).error().remedy(remedy);
  if (config.empty()) return Pooling::last;
  const auto modes = modes_of(config);
  if (!modes) return Error(modes.error()).remedy(remedy);
  if (modes->size() == 1) {
    const std::string& mode = modes->front();
    if (mode == "pooling_mode_mean_tokens" || mode == "mean") return Pooling::mean;
    if (mode == "pooling_mode_lasttoken" || mode == "lasttoken") return Pooling::last;
  }
  std::string named;
  for (const std::string& mode : *modes) named += (named.empty() ? "" : " and ") + mode.substr(0, 64);
  return invalid("its pooling is not done here: " + (named.empty() ? "none" : named)).remedy(remedy);
}

}  // namespace tutti::serve
