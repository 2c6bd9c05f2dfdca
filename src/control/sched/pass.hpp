// One pass over the queue: what all policies have in common. Each waiting gang has its turn once, and the
// first of these that holds decides: a limit, room (fitting.hpp), others that make way (making_way.hpp), a
// promise (releases.hpp), waiting. What one turn takes the next ones see, in claims.hpp; what is decided goes
// into draft.hpp.
#pragma once

#include "control/sched/rules.hpp"

namespace tutti::sched {

Plan run_pass(const Snapshot& snapshot, Instant now, const Rules& rules);

}  // namespace tutti::sched
