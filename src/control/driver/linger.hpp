// How long the loop waits for more before a turn. Whoever was just answered often asks again at once: where a
// commit takes long it is worth a moment to let them share the next one, instead of each half waiting for the
// other half's commit. One thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/time.hpp"

namespace tutti::driver {

constexpr Duration linger_turn_min = 2ms;  // shorter turns are not worth it
constexpr int linger_part = 4;             // of what the last turn took
constexpr Duration linger_max = 5ms;

class Linger {
 public:
  // A turn took so long and answered so many; so many more have asked meanwhile.
  void turned(Duration took, std::size_t answered, std::size_t asked) {
    const bool worth_it = took >= linger_turn_min && answered > 0;
    time_ = worth_it ? std::min<Duration>(took / linger_part, linger_max) : Duration::zero();
    expected_ = answered + asked;
  }

  // After the end of that turn, at most.
  Duration time() const { return time_; }
  // There is nobody more to wait for.
  bool enough(std::size_t asked) const { return time_ == Duration::zero() || asked >= expected_; }

 private:
  Duration time_{};
  std::size_t expected_ = 0;
};

}  // namespace tutti::driver
