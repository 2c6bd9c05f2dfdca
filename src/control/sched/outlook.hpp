// What it is likely to take to see a gang end, when nobody knows how long it runs: over all times, the least
// that it costs to run it for that time, for the chance that it ends by then (Gittins' index). What the
// chances are is told by gangs of its kind that ended, the nearer in submission the more; by those that still
// run, which take at least so long; and, for want of better, by all gangs that ended lately, taking it that
// large ones do as much as small ones and end the sooner. Used by one pass.
#pragma once

#include <vector>

#include "control/sched/sched.hpp"

namespace tutti::sched {

class Outlook {
 public:
  Outlook(const Snapshot& snapshot, Instant now);

  // In seconds, times the weight of its devices. The smaller, the sooner it should run; the same for all of
  // whom nothing is known.
  double cost(const JobView& job) const;

 private:
  struct Begun {
    Instant submitted;
    double seconds = 0;
  };

  const Past& past_;
  Instant now_;
  std::vector<std::vector<Begun>> begun_;  // by kind, in the order of submission
};

// How long it has run, all attempts together, as if with all the devices that it wants.
double run_seconds(const JobView& job, Instant now);

}  // namespace tutti::sched
