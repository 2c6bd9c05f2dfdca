// Jobs as the scheduler sees them, by id. The index owns them, and snapshots point to them. Plain data.
#pragma once

#include <map>

#include "control/sched/sched.hpp"

namespace tutti::cluster {

using Views = std::map<sched::JobId, sched::JobView>;

// Do they say the same about the same jobs? Left out is what depends on more than the state: estimates, and
// the numbers of shapes, kinds, queues, users and places.
bool same_views(const Views& some, const Views& others);

}  // namespace tutti::cluster
