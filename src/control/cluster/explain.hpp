// A question to the scheduler about one job, with a copy of all that the answer depends on: it may be
// answered on any thread while the state goes on.
#pragma once

#include <memory>
#include <vector>

#include "control/cluster/step.hpp"
#include "control/sched/explain.hpp"

namespace tutti::cluster {

struct Question {
  // What the snapshot points to, so that the question can be answered elsewhere while the state goes on.
  std::vector<sched::JobView> views;
  std::shared_ptr<const sched::Past> past;
  sched::Snapshot snapshot;
  sched::JobView job;
  Instant now;

  sched::Explanation answer() const { return sched::explain(snapshot, job, now); }
};

// About a job that waits.
Question question_about(State& state, Instant now, const Job& waiting);
// About one that is not submitted, or about the first element of an array; nothing changes. An error if it
// would be refused.
Result<Question> question_about(State& state, Instant now, const Submit& submit);

}  // namespace tutti::cluster
