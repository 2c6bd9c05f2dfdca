#include "cli/local_time.hpp"

#include <ctime>

namespace tutti::cli {
namespace {

constexpr std::string_view pattern = "dddd-dd-ddTdd:dd:dd.dddZ";

bool is_instant(std::string_view text) {
  if (text.size() != pattern.size()) return false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool digit = text[at] >= '0' && text[at] <= '9';
    if (pattern[at] == 'd' ? !digit : text[at] != pattern[at]) return false;
  }
  return true;
}

int number(std::string_view text, std::size_t from, std::size_t count) {
  int value = 0;
  for (const char digit : text.substr(from, count)) value = value * 10 + (digit - '0');
  return value;
}

std::tm on_the_wall(std::time_t time) {
  std::tm parts{};
  ::localtime_r(&time, &parts);
  return parts;
}

std::time_t seconds_of(Instant instant) {
  return std::chrono::floor<std::chrono::seconds>(instant.time_since_epoch()).count();
}

}  // namespace

std::string local_time(std::string_view instant) {
  const auto then = parse_instant(instant);
  if (!then) return std::string(instant);
  const std::tm parts = on_the_wall(seconds_of(*then));
  const std::tm today = on_the_wall(std::time(nullptr));
  const bool same_day = parts.tm_year == today.tm_year && parts.tm_yday == today.tm_yday;
  char text[32];
  return {text, std::strftime(text, sizeof text, same_day ? "%H:%M" : "%m-%d %H:%M", &parts)};
}

std::string local_date_time(std::string_view instant) {
  const auto then = parse_instant(instant);
  if (!then) return std::string(instant);
  const std::tm parts = on_the_wall(seconds_of(*then));
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}

std::optional<Instant> parse_instant(std::string_view text) {
  if (!is_instant(text)) return std::nullopt;
  std::tm utc{};
  utc.tm_year = number(text, 0, 4) - 1900;
  utc.tm_mon = number(text, 5, 2) - 1;
  utc.tm_mday = number(text, 8, 2);
  utc.tm_hour = number(text, 11, 2);
  utc.tm_min = number(text, 14, 2);
  utc.tm_sec = number(text, 17, 2);
  return Instant(std::chrono::seconds(::timegm(&utc)) + std::chrono::milliseconds(number(text, 20, 3)));
}

std::string with_local_times(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::string_view candidate = text.substr(0, pattern.size());
    const bool instant = is_instant(candidate);
    shown += instant ? local_time(candidate) : std::string(text.substr(0, 1));
    text.remove_prefix(instant ? pattern.size() : 1);
  }
  return shown;
}

}  // namespace tutti::cli
