#include "learn/tokenizer/fields.hpp"

#include <algorithm>
#include <utility>

#include "base/json/write.hpp"
#include "base/text.hpp"
#include "learn/tokenizer/definition.hpp"

namespace tutti::tokenizer {
namespace {

constexpr std::size_t shown_bytes_max = 60;

// A value for a message. What is nested can be deep, and is only named.
std::string shown(const json::Value& value) {
  if (value.object() != nullptr) return "an object";
  if (value.list() != nullptr) return "a list";
  return value.text() != nullptr ? in_quotes(*value.text()) : json::write(value);
}

}  // namespace

std::string shortened(std::string_view text) {
  return text.size() <= shown_bytes_max ? std::string(text)
                                        : valid_utf8(text.substr(0, shown_bytes_max)) + "…";
}
std::string in_quotes(std::string_view text) { return "'" + shortened(text) + "'"; }

Fields::Fields(const json::Value& object, std::string path, std::string& problem)
    : object_(object), path_(std::move(path)), problem_(problem) {
  if (object.object() == nullptr) refuse(path_.substr(0, path_.size() - 1), object, "an object");
}

const json::Value& Fields::operator[](const char* key) const {
  static const json::Value nothing;
  const json::Value* const found = object_.find(key);
  return found == nullptr ? nothing : *found;
}

bool Fields::toggle(const char* key, bool otherwise) {
  if (lacks(key)) return otherwise;
  const auto value = (*this)[key].boolean();
  if (!value) refuse_own(key, "true or false");
  return value.value_or(false);
}

std::string Fields::text(const char* key) {
  if (const std::string* const found = (*this)[key].text()) return *found;
  refuse_own(key, "a text");
  return "";
}

std::optional<std::uint32_t> Fields::id_of(const json::Value& value, const std::string& where) {
  const auto id = value.count();
  if (id && *id < vocabulary_max) return static_cast<std::uint32_t>(*id);
  refuse(where, value, "a whole number below " + std::to_string(vocabulary_max));
  return std::nullopt;
}

void Fields::only(const char* key, std::initializer_list<json::Value> values) {
  const json::Value& value = (*this)[key];
  const bool simple = value.object() == nullptr && value.list() == nullptr;
  if (simple && std::find(values.begin(), values.end(), value) != values.end()) return;
  std::string known;
  for (const json::Value& each : values) known += (known.empty() ? "" : " or ") + shown(each);
  refuse_own(key, known);
}

void Fields::nothing_but(std::initializer_list<std::string_view> keys) {
  if (object_.object() == nullptr) return;
  for (const auto& member : *object_.object()) {
    if (std::find(keys.begin(), keys.end(), member.key) == keys.end())
      tell("unknown field " + in_quotes(path_ + member.key));
  }
}

void Fields::refuse(const std::string& where, const json::Value& value, const std::string& known) {
  tell("'" + where + "' is " + shown(value) + ", and only " + known + " is known here");
}

void Fields::tell(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

const json::Array& Fields::list(const char* key, std::size_t most) {
  static const json::Array none;
  const json::Array* const found = (*this)[key].list();
  if (found != nullptr && found->size() <= most) return *found;
  refuse_own(key, "a list of at most " + std::to_string(most));
  return none;
}

}  // namespace tutti::tokenizer
