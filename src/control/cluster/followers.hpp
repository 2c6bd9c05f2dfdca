// Who waits for the success of which job, so that a job that fails finds those it dooms without a walk past
// all the others. A part of the index.
#pragma once

#include <map>
#include <set>

#include "control/cluster/change.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

class Followers {
 public:
  void changed(const Change& change);

  // Unfinished jobs that need the success of this one.
  const std::set<sched::JobId>& of(sched::JobId job) const;

  friend bool operator==(const Followers&, const Followers&) = default;

 private:
  std::map<sched::JobId, std::set<sched::JobId>> followers_;
};

}  // namespace tutti::cluster
