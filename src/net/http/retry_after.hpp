// When the other side wants to be asked again. For this module's own files only.
#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

namespace tutti::net {

constexpr int retry_after_seconds_max = 3600;

// Of the header of that name; 0 if it does not say. Dates are not understood.
inline int retry_after_seconds_of(std::string_view text) {
  int seconds = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool sound = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && seconds > 0;
  return sound ? std::min(seconds, retry_after_seconds_max) : 0;
}

}  // namespace tutti::net
