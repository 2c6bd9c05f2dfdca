// When a waiting gang would start. The scheduler itself is asked again and again, on a copy of the cluster in
// which time goes on: gangs end when they are expected to, and what the plan says is done. What nobody knows
// yet, such as jobs that are still to come, is left out. Pure: any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "control/sched/sched.hpp"

namespace tutti::sched {

struct Forecast {
  std::string why;               // it does not start at once; "" if it does
  std::vector<JobId> ahead;      // those whose turn comes before its own, in that order
  std::optional<Instant> start;  // nothing: not before `until`, or nobody knows
  std::string unknown;           // why nobody knows
};

// Asked again and again during an answer: true ends the search, with what is known by then. Whoever has a
// clock, or knows that nobody waits any more, says so here; null never does.
using Enough = std::function<bool()>;

struct ForecastLimits {
  Instant until = never;    // what comes later is of no interest
  int* passes = nullptr;    // how often the scheduler may still be asked; counted down
  Enough enough = nullptr;  // the first pass, which tells why it waits, is made whatever it says
};

// The job is one of the snapshot's queue.
Forecast forecast(const Snapshot& snapshot, JobId job, Instant now, const ForecastLimits& limits);

// How many passes one answer may take: a pass costs about as much as there are waiting gangs and nodes.
int passes_max(const Snapshot& snapshot);

}  // namespace tutti::sched
