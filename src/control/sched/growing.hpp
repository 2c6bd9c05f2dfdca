// Gangs that run with fewer ranks than they want. Assumes that nothing else waits for the room. One at a time
// is restarted with more: whatever is free then is counted again for the next. For what ends soon all wait,
// with what it leaves they may grow further; who takes long to end holds up only those who take long, too.
// Pure: any thread.
#pragma once

#include <optional>

#include "control/sched/lineup.hpp"
#include "control/sched/sched.hpp"

namespace tutti::sched {

struct Growth {
  const JobView* gang = nullptr;  // the one that starts again; none if nullptr
  std::int32_t ranks = 0;         // that it may have then
  Instant wake = never;           // when another may grow that has only just begun, or waits for an end
};

// `free` and `shares` as they are after all have had their turn.
Growth find_growth(const Snapshot& snapshot, Instant now, const Room& free, const Shares& shares,
                   const NodeChoice& choice);

}  // namespace tutti::sched
