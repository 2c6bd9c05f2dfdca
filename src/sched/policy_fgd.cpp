#include "sched/policies.hpp"

namespace tutti::sched {

Plan schedule_fgd(const Snapshot& snapshot, Instant now) {
  const TightestNode tightest;
  return run_pass(snapshot, now, {.order = as_they_came, .choice = &tightest});
}

}  // namespace tutti::sched
