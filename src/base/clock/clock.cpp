#include "base/clock/clock.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/text.hpp"

namespace tutti {

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

Instant now_on_the_wall() {
  return Instant(std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()));
}

Instant now_steady() {
  return Instant(std::chrono::duration_cast<Duration>(SteadyClock::now().time_since_epoch()));
}

std::string boot_id() {
  std::array<char, 64> text{};
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re"); file != nullptr) {
    if (std::fgets(text.data(), static_cast<int>(text.size()), file) == nullptr) text[0] = '\0';
    std::fclose(file);
  }
  return std::string(trim(text.data()));
}

namespace {

constexpr Duration jump_min = 1min;
constexpr Duration jump_lasts = 1h;

bool is_near(Duration a, Duration b) { return (a > b ? a - b : b - a) <= jump_min; }

}  // namespace

Instant CalmDate::now() {
  return see(now_on_the_wall(), std::chrono::duration_cast<Duration>(SteadyClock::now().time_since_epoch()));
}

Instant CalmDate::see(Instant wall, Duration steady) {
  const Duration offset = wall.time_since_epoch() - steady;
  const bool goes_on = !seen_ || is_near(offset, believed_);
  if (goes_on || !is_near(offset, candidate_)) {
    candidate_ = offset;
    jumped_at_ = steady;
  }
  if (goes_on || steady - jumped_at_ >= jump_lasts) believed_ = offset;
  seen_ = true;
  // What is used while the clock is set back has dates of then, and is as new as it is.
  return std::min(Instant(believed_ + steady), wall);
}

}  // namespace tutti
