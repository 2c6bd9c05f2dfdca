// A line of a report, as printf writes it.
#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace tutti::serve {

template <class... Values>
std::string line(const char* form, Values... values) {
  std::array<char, 256> text{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  std::snprintf(text.data(), text.size(), form, values...);
#pragma GCC diagnostic pop
  return text.data();
}

}  // namespace tutti::serve
