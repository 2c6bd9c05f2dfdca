// The clocks of this machine, for the shells: the pure core is told the time. Any thread.
#pragma once

#include <chrono>

#include "base/time.hpp"

namespace tutti {

// For how long something took: never goes back.
using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin);

// The date, which may jump.
Instant now_on_the_wall();

}  // namespace tutti
