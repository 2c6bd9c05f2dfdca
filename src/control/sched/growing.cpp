#include "control/sched/growing.hpp"

#include <algorithm>

#include "control/sched/fitting.hpp"

namespace tutti::sched {

Growth find_growth(const Snapshot& snapshot, Instant now, const Room& free, const Shares& shares,
                   const NodeChoice& choice) {
  Growth growth;
  if (std::any_of(snapshot.running.begin(), snapshot.running.end(),
                  [](const JobView* gang) { return gang->ending; }))
    return growth;
  for (const JobView* gang : snapshot.running) {
    const std::int32_t ranks = gang->places.ranks();
    if (ranks >= gang->shape->ranks) continue;
    if (now - gang->started_at < grow_after) {
      growth.wake = std::min(growth.wake, gang->started_at + grow_after);
      continue;
    }
    Room room = free;
    room.give(*gang->shape, gang->places);
    std::int64_t allowed = shares.allowed(*gang);
    if (allowed != no_limit) allowed += held_share(*gang);
    const auto places = place_allowed(room, *gang, allowed, choice);
    if (!places || places->ranks() <= ranks) continue;
    growth.gang = gang;
    growth.ranks = places->ranks();
    return growth;
  }
  return growth;
}

}  // namespace tutti::sched
