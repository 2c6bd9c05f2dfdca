#include "control/sched/growing.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "control/sched/place.hpp"

namespace tutti::sched {
namespace {

// No more than these are tried in one pass; the next one, a moment later, begins behind them.
constexpr std::size_t grown_tried_max = 256;
constexpr Duration tried_again_after = 1min;

// With more ranks than it has, and as many as it may.
std::optional<Places> place_larger(const Room& room, const JobView& gang, std::int64_t allowed,
                                   const NodeChoice& choice) {
  for (const std::int32_t ranks : counts_of(*gang.shape)) {
    if (ranks <= gang.places.ranks()) break;
    if (allowed != no_limit && share_with(gang, ranks) > allowed) continue;
    if (!may_hold(room, *gang.shape, ranks)) continue;
    if (auto places = place(room, *gang.shape, ranks, choice)) return places;
  }
  return std::nullopt;
}

bool is_small(const JobView& gang) { return gang.places.ranks() < gang.shape->ranks; }

// What ends soon and until when that is waited for, and whether one that takes long may be about to grow.
struct Ends {
  bool soon = false;
  Instant late = never;
  bool long_growth = false;
};

Ends ends_in(const std::vector<const JobView*>& running, Instant now) {
  Ends ends;
  for (const JobView* gang : running) {
    if (!gang->ending) continue;
    if (!ends_soon(*gang, now)) {
      ends.long_growth = ends.long_growth || (gang->makes_way && is_small(*gang));
      continue;
    }
    ends.soon = true;
    if (gang->ends_by != Instant()) ends.late = std::min(ends.late, gang->ends_by + soon_max + 1ms);
  }
  return ends;
}

}  // namespace

Growth find_growth(const Snapshot& snapshot, Instant now, const Room& free, const Shares& shares,
                   const NodeChoice& choice) {
  Growth growth;
  const Ends ends = ends_in(snapshot.running, now);
  std::vector<const JobView*> small;
  for (const JobView* gang : snapshot.running) {
    if (!is_small(*gang) || gang->ending) continue;
    // What is free may be what the other one counts on.
    if (ends.long_growth && gang->grace > soon_max) continue;
    if (now - gang->started_at < grow_after) {
      growth.wake = std::min(growth.wake, gang->started_at + grow_after);
    } else {
      small.push_back(gang);
    }
  }
  if (small.empty()) return growth;
  if (ends.soon) {
    growth.wake = std::min(growth.wake, ends.late);
    return growth;
  }
  // Of more than can be tried, each has its turn after a while.
  std::size_t first = 0;
  if (small.size() > grown_tried_max) {
    growth.wake = std::min(growth.wake, now + tried_again_after);
    const auto rounds =
        static_cast<std::uint64_t>(std::max<Duration>(now.time_since_epoch(), 0s) / tried_again_after);
    first = static_cast<std::size_t>(rounds * grown_tried_max % small.size());
  }
  Room room = free;
  for (std::size_t tried = 0; tried < std::min(small.size(), grown_tried_max); ++tried) {
    const JobView* gang = small[(first + tried) % small.size()];
    room.give(*gang->shape, gang->places);
    std::int64_t allowed = shares.allowed(*gang);
    if (allowed != no_limit) allowed += held_share(*gang);
    if (const auto places = place_larger(room, *gang, allowed, choice)) {
      growth.gang = gang;
      growth.ranks = places->ranks();
      return growth;
    }
    room.take(*gang->shape, gang->places);
  }
  return growth;
}

}  // namespace tutti::sched
