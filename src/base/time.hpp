// Points and spans of time. There is no now() here: time is an argument, and only the shells own a clock.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti {

using Duration = std::chrono::nanoseconds;

// The line on which instants lie: nanoseconds since 1970, UTC. A std::chrono clock without now().
struct Timeline {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Timeline, Duration>;
  static constexpr bool is_steady = false;
};
using Instant = Timeline::time_point;

using namespace std::chrono_literals;

constexpr double in_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// "90s", "1h30m", "250ms", "2d", "1.5h": a number with its unit, the largest unit first. Never negative.
Result<Duration> parse_duration(std::string_view text);

// The shortest exact form that parse_duration reads back: "1h30m", "250ms", "0s"; "-5s" for a negative one.
std::string format_duration(Duration duration);

// RFC 3339 in UTC with milliseconds: "2026-11-15T09:05:00.250Z".
std::string format_instant(Instant instant);

}  // namespace tutti
