// The program's log, on stderr. Quiet by default: warnings and errors only. Safe on any thread once set up.
// Messages are for operators: no secrets, no user data beyond names and ids.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/result.hpp"

namespace tutti::log {

enum class Level { debug, info, warning, error, off };

// "debug", "info", "warning", "error", "off".
Result<Level> parse_level(std::string_view text);

struct Options {
  Level level = Level::warning;
  bool json = false;  // one JSON object a line: time, level, part, message
  std::string part = "tutti";
};

// Call once, at the start of main; before it the defaults hold.
void setup(const Options& options);

bool enabled(Level level);
void write(Level level, std::string_view message);

template <class... Args>
void print(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(level)) write(level, fmt::vformat(format, fmt::make_format_args(args...)));
}

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  print(Level::debug, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  print(Level::info, format, std::forward<Args>(args)...);
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  print(Level::warning, format, std::forward<Args>(args)...);
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  print(Level::error, format, std::forward<Args>(args)...);
}

}  // namespace tutti::log
