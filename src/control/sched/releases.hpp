// When will there be room for a gang? Assumes that gangs end when they are expected to, that those of which
// nothing is known never do, and that what is free by then goes to nobody else but those to whom it is
// promised already. Used by one pass.
#pragma once

#include <optional>
#include <vector>

#include "control/sched/claims.hpp"
#include "control/sched/draft.hpp"

namespace tutti::sched {

class Releases {
 public:
  Releases(const Snapshot& snapshot, Instant now) : snapshot_(snapshot), now_(now) {}

  // The earliest time and place for the job, with the fewest ranks that it does with.
  std::optional<Promise> find(const Claims& claims, const Draft& draft, const JobView& job,
                              const NodeChoice& choice);

 private:
  struct Release {
    Instant when;
    const JobView* job = nullptr;
    std::optional<std::size_t> start;  // of one that starts in this pass: which
  };
  void catch_up(const Claims& claims, const Draft& draft);

  const Snapshot& snapshot_;
  const Instant now_;
  std::optional<std::vector<Release>> all_;  // by time; of what starts in this pass, the first `starts_seen_`
  std::size_t starts_seen_ = 0;
};

}  // namespace tutti::sched
