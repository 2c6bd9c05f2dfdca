// How long and how often the last checkpoint of a run is tried, where the disk does not take it: later and
// later, and not for ever. A value: time is an argument.
#pragma once

#include <optional>

#include "base/time.hpp"

namespace tutti::train {

struct PatienceOptions {
  Duration pause_first = std::chrono::seconds(1);
  Duration pause_max = std::chrono::seconds(15);
  // Somebody has to see it and make room, and the devices do nothing meanwhile.
  Duration for_all = std::chrono::minutes(30);
  // Once the rank is asked to stop: well within the grace of a job.
  Duration once_stopped = std::chrono::seconds(10);
};

class Patience {
 public:
  Patience(const PatienceOptions& options, Duration now)
      : options_(options), until_(now + options.for_all), pause_(options.pause_first) {}

  // How long to wait before the next try; nothing when there is to be none.
  std::optional<Duration> next_pause(Duration now, bool stopped);
  // That it ends, as it is known so far.
  Duration left(Duration now) const { return until_ - now; }

 private:
  PatienceOptions options_;
  Duration until_;
  Duration pause_;
  bool stopped_ = false;
};

}  // namespace tutti::train
