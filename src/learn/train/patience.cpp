#include "learn/train/patience.hpp"

#include <algorithm>
#include <utility>

namespace tutti::train {

std::optional<Duration> Patience::next_pause(Duration now, bool stopped) {
  if (stopped && !std::exchange(stopped_, true)) {
    until_ = std::min(until_, now + options_.once_stopped);
    pause_ = std::min(pause_, options_.pause_first);
  }
  if (now >= until_) return std::nullopt;
  // The last try is at the end itself: room may have come while nobody looked.
  const Duration pause = std::min(pause_, until_ - now);
  pause_ = std::min(2 * pause_, options_.pause_max);
  return pause;
}

}  // namespace tutti::train
