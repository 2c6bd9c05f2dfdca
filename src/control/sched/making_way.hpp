// Who could end so that a waiting gang has room. Assumes that whole gangs end, never more than needed, and
// that what they free goes to nobody else. Who takes long to end (`soon_max`) makes way only if the others
// are not enough: nobody is asked to leave a room that stays empty for an hour. It only looks: the pass does
// what is found. Used by one pass.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "control/sched/claims.hpp"
#include "control/sched/moving.hpp"
#include "control/sched/rules.hpp"
#include "control/sched/way.hpp"

namespace tutti::sched {

class MakingWay {
 public:
  MakingWay(const Snapshot& snapshot, const Rules& rules)
      : snapshot_(snapshot), rules_(rules), moving_(snapshot, rules) {}

  std::optional<Way> find(Claims& claims, const Shares& shares, const JobView& job);
  // The same with those that take long, which may be ending already; of the ways that take about as long, the
  // one that is the policy's.
  std::optional<LongWay> find_long(Claims& claims, const Shares& shares, const JobView& job);
  // That way is made: what is found later leaves its share to the job.
  void promised(const LongWay& way, const JobView& job);

 private:
  // Those for whom the same gangs would make way, or fewer: a user's gangs come in the order of their cost.
  using Alike = std::tuple<std::uint32_t, QueueIndex, std::int32_t, UserIndex>;

  std::optional<Way> displace(Claims& claims, const Shares& shares, const JobView& job);
  // All of `chosen` have ended in `trial`, and there is room then; the first `too_few` of them are not
  // enough.
  Way fewest(Room trial, const JobView& job, std::vector<const JobView*> chosen, std::size_t too_few,
             Places places) const;
  // The soonest, whether with those that end soon or without them.
  std::optional<LongWay> wait_soonest(Claims& claims, const Shares& then, const JobView& job);
  // `trial` is the room without those that take long.
  std::optional<LongWay> wait_long(Room trial, const Claims& claims, const Shares& shares,
                                   const JobView& job);
  bool holds(const Room& trial, const JobView& job) const;
  // The shares when those that take long have left and those to whom their room is promised have it. Until
  // then nothing changes hands, and others of the queue may use what is free.
  Shares shares_then(Shares shares) const;
  bool may_stop(const Claims& claims, const Shares& shares, const JobView& job, const JobView& gang) const;
  void sort_out(Instant now);

  const Snapshot& snapshot_;
  const Rules& rules_;
  Moving moving_;
  int tried_ = 0;
  int long_tried_ = 0;
  std::size_t looked_at_ = 0;  // gangs that run, for all that wait together
  std::size_t long_looked_at_ = 0;
  std::set<Alike> in_vain_;
  std::set<Alike> long_in_vain_;
  bool sorted_out_ = false;
  std::vector<const JobView*> victims_;  // those to be stopped rather come first
  std::vector<const JobView*>
      slow_;  // those that take long, the ending ones too: the sooner by far come first
  std::map<JobId, const JobView*> later_;  // whose share is another then: who runs has left, who waits runs
};

}  // namespace tutti::sched
