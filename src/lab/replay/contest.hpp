// How long one pass of the scheduler takes at the worst: queues and running gangs that make it look the
// longest for room that others would have to leave, or that is not there. Reads the clock: it measures.
#pragma once

#include <cstdint>

#include "base/result.hpp"

namespace tutti::replay {

struct ContestOptions {
  std::int64_t gpus = 220'000;  // each has a gang of its own running on it
  std::int64_t jobs = 100'000;  // that wait
};

struct Contest {
  double making_way_ms = 0;   // gangs of up to 4,096 GPUs, for which small ones make way
  double in_vain_ms = 0;      // small ones would make way, and what is in the way then does not
  double many_shapes_ms = 0;  // the same, and no two that wait have the same shape
  double growing_ms = 0;      // nobody waits, everybody would grow, and nobody can
};

Result<Contest> contest(const ContestOptions& options);

}  // namespace tutti::replay
