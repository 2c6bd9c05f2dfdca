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

}  // namespace

std::string local_time(std::string_view instant) {
  if (!is_instant(instant)) return std::string(instant);
  std::tm utc{};
  utc.tm_year = number(instant, 0, 4) - 1900;
  utc.tm_mon = number(instant, 5, 2) - 1;
  utc.tm_mday = number(instant, 8, 2);
  utc.tm_hour = number(instant, 11, 2);
  utc.tm_min = number(instant, 14, 2);
  utc.tm_sec = number(instant, 17, 2);
  const std::tm then = on_the_wall(::timegm(&utc));
  const std::tm today = on_the_wall(std::time(nullptr));
  const bool same_day = then.tm_year == today.tm_year && then.tm_yday == today.tm_yday;
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, same_day ? "%H:%M" : "%m-%d %H:%M", &then);
  return {text, size};
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
