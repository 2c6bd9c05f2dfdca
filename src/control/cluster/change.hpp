// What happened to a job, as each part of the index is told it. It lives for one call.
#pragma once

#include "base/time.hpp"

namespace tutti::cluster {

struct State;
struct Job;

// Where a job is on its way. It waits and runs in turn until it ends.
enum class Phase { unknown, waiting, running, ended };

Phase phase_of(const Job& job);

struct Change {
  const State& state;
  const Job& job;  // as it is now
  Phase before = Phase::unknown;
  Phase after = Phase::unknown;
  Instant now;

  bool enters(Phase phase) const { return before != phase && after == phase; }
  bool leaves(Phase phase) const { return before == phase && after != phase; }
};

}  // namespace tutti::cluster
