// How fast the scheduler is on a cluster of a given size. Reads the clock: it measures.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.hpp"

namespace tutti::replay {

// Who else waits in the pass over a crowd.
constexpr std::int32_t crowd_users = 40'000;
constexpr std::int32_t crowd_queues = 300;

struct ScaleOptions {
  std::int64_t gpus = 220'000;
  std::int64_t jobs = 100'000;
  std::uint64_t seed = 1;
};

struct Scaled {
  std::int64_t nodes = 0;
  std::int64_t placements = 0;
  double placements_per_s = 0;
  double pass_ms = 0;        // over the whole queue when nothing fits any more
  double crowd_pass_ms = 0;  // the same, when its gangs are of many users and in many queues
  double resident_mib = 0;
  double mean_gpus = 0;  // of a gang
};

Result<Scaled> scale(const ScaleOptions& options);

}  // namespace tutti::replay
