// The clocks of this machine, for the shells: the pure core is told the time. Any thread.
#pragma once

#include <chrono>
#include <string>

#include "base/time.hpp"

namespace tutti {

// For how long something took: never goes back.
using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin);

// The date, which may jump.
Instant now_on_the_wall();
// The steady clock's, on the same kind of line: nobody's date, and the same for all processes since
// boot_id().
Instant now_steady();
// Which start of this machine this is, as the kernel names it; "" if it does not.
std::string boot_id();

// The date for what is removed by its age: a jump ahead is believed only when it has lasted, because a clock
// that is wrong for a moment must not cost what was to be kept for weeks. It is never ahead of the clock, by
// which what is used meanwhile is dated. One thread.
class CalmDate {
 public:
  Instant now();
  // The same with the clocks given: the wall's, and one that only goes on.
  Instant see(Instant wall, Duration steady);

 private:
  bool seen_ = false;
  Duration believed_{};   // the wall's time when the steady one was 0
  Duration candidate_{};  // since the last jump
  Duration jumped_at_{};  // on the steady clock
};

}  // namespace tutti
