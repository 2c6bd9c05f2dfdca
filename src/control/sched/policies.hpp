// The policies, each in a file of its own that opens with what it assumes.
#pragma once

#include "control/sched/pass.hpp"

namespace tutti::sched {

Plan schedule_tutti(const Snapshot& snapshot, Instant now);
Plan schedule_tutti(const Snapshot& snapshot, Instant now, LastTurn last_turn);
Plan schedule_fifo(const Snapshot& snapshot, Instant now);
Plan schedule_srtf(const Snapshot& snapshot, Instant now);
Plan schedule_best_fit(const Snapshot& snapshot, Instant now);
Plan schedule_fgd(const Snapshot& snapshot, Instant now);

// As they came.
inline OrderKey as_they_came(const JobView& job) { return {0, 0, 0, job.submitted_at, job.id}; }

}  // namespace tutti::sched
