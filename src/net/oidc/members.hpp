// Members of a JSON object that are texts. For this module's own files only.
#pragma once

#include <string>
#include <string_view>

#include "base/json/value.hpp"

namespace tutti::oidc {

// Null if there is none, or if it is no text.
inline const std::string* text_in(const json::Value& object, std::string_view name) {
  const json::Value* value = object.find(name);
  return value == nullptr ? nullptr : value->text();
}

// The same, and "" for none.
inline std::string text_of(const json::Value& object, std::string_view name) {
  const std::string* text = text_in(object, name);
  return text == nullptr ? "" : *text;
}

}  // namespace tutti::oidc
