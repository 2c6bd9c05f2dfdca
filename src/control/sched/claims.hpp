// The room of one pass, and who has a claim to it: what is free now, what of that is promised to nobody, and
// what will be free when all that ends soon has ended. The three change together, here alone. They only
// shrink, but for what is stopped: that adds to what will be free. Used by one pass.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "control/sched/sched.hpp"

namespace tutti::sched {

class Claims {
 public:
  Claims(const Snapshot& snapshot, Instant now);

  // ---- what there is
  const Room& free() const { return free_; }
  const Room& unpromised() const { return promised_ ? promised_->others : free_; }
  // Must it leave alone what is promised? Not if it is over by then.
  bool goes_around(const JobView& job) const { return goes_around(job, now_); }
  // What it may have now, and when all that ends soon has ended.
  const Room& free_for(const JobView& job) const { return goes_around(job) ? promised_->others : free_; }
  Room soon_for(const JobView& job);
  // The same for one that must leave alone what is promised.
  Room unpromised_soon();
  // What was ending when the pass began and has ended soon, and when, at the latest.
  const std::vector<const JobView*>& ending() { return soon().ending; }
  Instant ended_by() { return soon().ended_by; }
  Instant now() const { return now_; }
  bool stopped(const JobView& gang) const { return stopped_.contains(gang.id); }

  // ---- what changes
  // The job will have these places, whether they are free yet or not.
  void take(const JobView& job, const Places& places);
  // The running gang ends for the sake of another.
  void stop(const JobView& gang);
  void promise(const JobView& job, const Promise& promise);

 private:
  struct Promised {
    Room others;  // for all but those to whom something is promised
    Instant first;
  };
  struct Soon {
    Room room;
    std::vector<const JobView*> ending;
    Instant ended_by;
  };
  Soon& soon();
  bool goes_around(const JobView& job, Instant start) const;

  const Snapshot& snapshot_;
  const Instant now_;
  Room free_;
  std::optional<Promised> promised_;  // once something is
  std::optional<Soon> soon_;          // once somebody asks
  std::map<JobId, const JobView*> stopped_;
};

}  // namespace tutti::sched
