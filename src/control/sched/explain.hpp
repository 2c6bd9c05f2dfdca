// Why a job waits, when it is expected to start, and what would start it sooner. Every answer is the
// scheduler's own: each change is tried on a copy of the snapshot before it is suggested. Pure: any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/sched/forecast.hpp"
#include "control/sched/sched.hpp"

namespace tutti::sched {

constexpr std::size_t suggestions_max = 5;
constexpr std::size_t ahead_named_max = 5;

struct Suggestion {
  std::string change;  // "7 instead of 8 nodes"
  Instant start;       // sooner than without it
  bool now = false;
};

struct Explanation {
  bool starts_now = false;
  std::string why;  // which constraint holds it back; "" if none does
  std::string queue;
  std::size_t ahead = 0;         // how many come before it in the scheduler's order
  std::vector<JobId> ahead_ids;  // the first of them
  std::optional<Instant> expected_start;
  std::string unknown;                  // why nothing is expected
  std::vector<Suggestion> suggestions;  // soonest first
};

// How long is looked for each; null: as long as it takes.
struct Patience {
  Enough start = nullptr;    // for when it starts
  Enough changes = nullptr;  // then for what would start it sooner
};

// Of a job that waits, or of one that could be submitted: the latter is not in the snapshot's queue. Its
// queue and user are those of the snapshot. Why it waits is told in any case; when it starts, and what would
// start it sooner, only as far as there is patience to look.
Explanation explain(const Snapshot& snapshot, const JobView& job, Instant now, const Patience& patience = {});

}  // namespace tutti::sched
