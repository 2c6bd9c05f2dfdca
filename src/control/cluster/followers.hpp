// Who comes after which job. A waiting job knows how many of those that it comes after have not ended, so
// that a pass over the queue follows nobody; one that ends finds those that waited for it, and dooms those
// that needed its success if it had none. A part of the index.
#pragma once

#include <map>

#include "control/cluster/change.hpp"
#include "control/cluster/shares.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

class Followers {
 public:
  struct Wait {
    std::size_t unfinished = 0;  // jobs that it comes after
    std::size_t first = 0;       // where the first of them stands in its list

    friend bool operator==(const Wait&, const Wait&) = default;
  };

  void changed(const Change& change);

  // Jobs that wait for others, and for how many.
  const std::map<sched::JobId, Wait>& waits() const { return waits_; }
  // Waiting jobs that will never start, with the job whose success they need.
  const std::map<sched::JobId, sched::JobId>& doomed() const { return doomed_; }
  // How many pairs of such jobs there are, each counted for the user of the one that waits.
  const Shares& dependencies() const { return dependencies_; }

  // Which of several lost successes dooms a job depends on which was lost first.
  friend bool operator==(const Followers& one, const Followers& other);

 private:
  void add(const Change& change);
  void remove(const Change& change);
  void tell_followers(const Change& change);

  // By the one that goes before: who comes after it, and whether that one needs its success.
  std::map<sched::JobId, std::map<sched::JobId, bool>> followers_;
  std::map<sched::JobId, Wait> waits_;
  std::map<sched::JobId, sched::JobId> doomed_;
  Shares dependencies_;
};

}  // namespace tutti::cluster
