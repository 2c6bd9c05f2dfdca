// The program's log, on stderr. Quiet by default: warnings and errors only. Safe on any thread once set up.
// In a program that serves nobody who logs waits for stderr: a thread writes, and where a stalled disk or a
// stopped reader takes nothing for long, lines are left out and counted.
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
  bool serves =
      false;  // such a program must not fork without exec: the child would have no thread that writes
};

// Call once, at the start of main; before it the defaults hold.
void setup(const Options& options);
// What waits has a second to be written: at the end, and before an end without destructors. An abort does so
// by itself. Whether nothing waits any more.
bool finish();
// Text for whoever has started the program, as it is and whatever the level, in its order among the lines.
void say(const std::string& text);

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
