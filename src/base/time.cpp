#include "base/time.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace tutti {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t nanoseconds;
};

// Largest first: parsing demands this order and formatting follows it.
constexpr std::array<Unit, 7> units{{{"d", 86'400'000'000'000},
                                     {"h", 3'600'000'000'000},
                                     {"m", 60'000'000'000},
                                     {"s", 1'000'000'000},
                                     {"ms", 1'000'000},
                                     {"us", 1'000},
                                     {"ns", 1}}};

Error bad_duration(std::string_view text) {
  return invalid("'" + std::string(text.substr(0, 64)) + "' is not a duration")
      .remedy("write a number and a unit, such as 90s, 1h30m, 250ms or 2d");
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  if (text.empty()) return bad_duration(text);
  constexpr double nanoseconds_max = 9.2e18;
  double total = 0;
  std::size_t next_unit = 0;
  for (const char *at = text.data(), *end = text.data() + text.size(); at != end;) {
    double number = 0;
    if (*at < '0' || *at > '9') return bad_duration(text);
    const auto parsed = std::from_chars(at, end, number, std::chars_format::fixed);
    if (parsed.ec != std::errc()) return bad_duration(text);
    const char* unit_end = parsed.ptr;
    while (unit_end != end && *unit_end >= 'a' && *unit_end <= 'z') ++unit_end;
    const std::string_view name(parsed.ptr, static_cast<std::size_t>(unit_end - parsed.ptr));
    while (next_unit < units.size() && units[next_unit].name != name) ++next_unit;
    if (next_unit == units.size()) return bad_duration(text);
    total += number * static_cast<double>(units[next_unit].nanoseconds);
    if (!(total <= nanoseconds_max)) return bad_duration(text).remedy("durations end at 292 years");
    ++next_unit;
    at = unit_end;
  }
  return Duration(std::llround(total));
}

std::string format_duration(Duration duration) {
  if (duration == Duration::zero()) return "0s";
  std::string text;
  // Counting with a negative rest covers the most negative value too, whose opposite does not exist.
  std::int64_t rest = duration.count();
  if (rest < 0) {
    text = "-";
  } else {
    rest = -rest;
  }
  for (const Unit& unit : units) {
    const std::int64_t count = -(rest / unit.nanoseconds);
    if (count == 0) continue;
    text += std::to_string(count);
    text += unit.name;
    rest += count * unit.nanoseconds;
  }
  return text;
}

std::string format_instant(Instant instant) {
  using namespace std::chrono;
  const auto since_epoch = instant.time_since_epoch();
  const auto day = floor<days>(since_epoch);
  const year_month_day date{sys_days(day)};
  const hh_mm_ss clock(floor<milliseconds>(since_epoch - day));
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return text;
}

}  // namespace tutti
