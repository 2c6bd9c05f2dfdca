// fifo. Assumes nothing about durations and knows no queues or priorities: gangs start in the order in which
// they came, and one that does not fit is passed over by those behind it that do. Nothing is ever stopped.
#include "control/sched/policies.hpp"

namespace tutti::sched {

Plan schedule_fifo(const Snapshot& snapshot, Instant now) {
  const TightestNode tightest;
  return run_pass(snapshot, now, {.order = as_they_came, .choice = &tightest});
}

}  // namespace tutti::sched
