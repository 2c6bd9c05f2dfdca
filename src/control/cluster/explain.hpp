// A question to the scheduler about one job, with a copy of all that the answer depends on: it may be
// answered on any thread while the state goes on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/cluster/step.hpp"
#include "control/sched/explain.hpp"

namespace tutti::cluster {

// A long queue, or a large cluster, is copied at most so often; questions in between are answered from the
// copy.
constexpr Duration standing_age_max = 1s;
constexpr std::size_t standing_shared_min = 1'000;  // jobs and nodes

// How everything stood when it was copied. Shared and never changed.
struct Standing {
  Standing() = default;
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;

  // What the snapshot points to.
  std::vector<sched::JobView> views;
  sched::Past past;
  sched::Snapshot snapshot;
  Instant at;
  std::uint64_t numbering = 0;  // of shapes and kinds
};

struct Question {
  std::shared_ptr<const Standing> standing;
  sched::JobView job;
  std::optional<sched::UserView> user;  // of one who has no job there now
  std::string held_by;                  // what it waits for beside room, where the copy does not know it
  Instant now;

  sched::Explanation answer(const sched::Patience& patience = {}) const;
};

// About a job that waits.
Question question_about(State& state, Instant now, const Job& waiting);
// About one that is not submitted, or about the first element of an array; nothing changes. An error if it
// would be refused.
Result<Question> question_about(State& state, Instant now, const Submit& submit);

}  // namespace tutti::cluster
