// A JSON value as text. The same value is the same bytes, and a double reads back to its last bit. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "base/json/value.hpp"

namespace tutti::json {

struct Style {
  std::size_t indent = 0;  // spaces for each level; 0 writes all on one line
  bool ascii = false;      // escapes all that a terminal might not show as it is
};

// Bytes that are not UTF-8 become U+FFFD. Infinities and NaN, which JSON has none of, become null.
std::string write(const Value& value, const Style& style = {});

}  // namespace tutti::json
