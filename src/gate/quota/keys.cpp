#include "gate/quota/keys.hpp"

#include <algorithm>
#include <array>

#include "base/json/parse.hpp"
#include "base/text.hpp"

namespace tutti::gate {
namespace {

constexpr std::size_t hash_letters = 64;
constexpr std::array<std::string_view, 6> known_members{
    "name", "sha256", "models", "requests_per_minute", "tokens_per_day", "priority"};

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= key_name_bytes_max && std::ranges::all_of(text, [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.' ||
           letter == '@';
  });
}

bool is_hash(std::string_view text) {
  return text.size() == hash_letters && std::ranges::all_of(text, [](char letter) {
           return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
         });
}

Result<std::int64_t> number_in(const json::Value& value, std::int64_t most) {
  const auto number = value.whole();
  if (!number || *number < 0 || *number > most)
    return invalid("must be a whole number from 0 to " + std::to_string(most));
  return *number;
}

Result<std::set<std::string>> models_in(const json::Value& value) {
  const Error wrong = invalid("must be a list of names, at most " + std::to_string(key_models_max));
  if (value.list() == nullptr || value.list()->size() > key_models_max) return wrong;
  std::set<std::string> models;
  for (const json::Value& model : *value.list()) {
    if (model.text() == nullptr || model.text()->empty()) return wrong;
    models.insert(*model.text());
  }
  // One that may ask nothing is no key, and not one that may ask everything.
  if (models.empty()) return invalid("names nothing that it may ask").remedy("leave it out for everything");
  return models;
}

Result<> read_member(std::string_view member, const json::Value& value, KeyRules& rules, std::string& hash) {
  const auto into = [](auto read, auto& target) -> Result<> {
    if (!read) return std::move(read).error();
    target = std::move(*read);
    return {};
  };
  if (member == "name") {
    if (value.text() == nullptr || !is_name(*value.text()))
      return invalid("must have 1 to " + std::to_string(key_name_bytes_max) + " of a-z A-Z 0-9 - _ . @");
    rules.name = *value.text();
    return {};
  }
  if (member == "sha256") {
    if (value.text() == nullptr || !is_hash(*value.text()))
      return invalid("must have 64 lower-case hexadecimal digits")
          .remedy("`printf %s \"$KEY\" | sha256sum` prints it");
    hash = *value.text();
    return {};
  }
  if (member == "models") return into(models_in(value), rules.models);
  if (member == "requests_per_minute")
    return into(number_in(value, key_limit_max), rules.requests_per_minute);
  if (member == "tokens_per_day") return into(number_in(value, key_limit_max), rules.tokens_per_day);
  return into(number_in(value, key_priority_max), rules.priority);
}

// A key that was written there by mistake is in no message: of members only the known ones are named.
Result<> read_line(std::string_view line, KeyRules& rules, std::string& hash) {
  const auto value = json::parse(line);
  if (!value || value->object() == nullptr) return invalid("is no JSON object");
  for (const auto& [member, part] : *value->object()) {
    const bool is_known = std::ranges::find(known_members, std::string_view(member)) != known_members.end();
    if (!is_known)
      return invalid("has a member that is not known here")
          .remedy("name, sha256, models, requests_per_minute, tokens_per_day and priority are");
    if (auto read = read_member(member, part, rules, hash); !read)
      return std::move(read).error().within(member);
  }
  if (rules.name.empty() || hash.empty()) return invalid("needs a name and a sha256");
  return {};
}

}  // namespace

Result<Keys> read_keys(std::string_view text) {
  Keys keys;
  std::set<std::string> names;
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    const std::string_view said = trim(line);
    if (said.empty() || said.starts_with('#')) continue;
    const std::string where = "line " + std::to_string(number);
    KeyRules rules;
    std::string hash;
    if (auto read = read_line(said, rules, hash); !read) return std::move(read).error().within(where);
    if (!names.insert(rules.name).second) return invalid("its name is there twice").within(where);
    if (!keys.emplace(hash, std::move(rules)).second)
      return invalid("its sha256 is there twice").within(where);
    if (keys.size() > keys_max)
      return invalid("there can be at most " + std::to_string(keys_max) + " keys").within(where);
  }
  return keys;
}

}  // namespace tutti::gate
