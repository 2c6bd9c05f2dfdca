#include "control/sched/pass.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "control/sched/claims.hpp"
#include "control/sched/draft.hpp"
#include "control/sched/fitting.hpp"
#include "control/sched/growing.hpp"
#include "control/sched/making_way.hpp"
#include "control/sched/releases.hpp"

namespace tutti::sched {
namespace {

// "node a", "3 nodes from a to c".
std::string describe_nodes(const Room& room, const Places& places) {
  const NodeName& first = room.name(places.slots.front().node);
  if (places.slots.size() == 1) return "node " + first;
  return std::to_string(places.slots.size()) + " nodes from " + first + " to " +
         room.name(places.slots.back().node);
}

std::string describe_stop(const JobView& job) { return "makes way for job " + job.id.text(); }

std::string describe_stop(const Way& way, const JobView& job) {
  return way.kind == Way::Kind::moves ? "moves, so that there is room for job " + job.id.text()
                                      : describe_stop(job);
}

// Of one that waits for what is ending already.
std::string describe_wait(const std::vector<const JobView*>& ending, Instant ended_by) {
  const std::string who = ending.size() == 1 ? "job " + ending.front()->id.text() + ", which is ending, has"
                                             : std::string("gangs that are ending have");
  return "starts when " + who + " ended, at " + format_instant(ended_by) + " at the latest";
}

std::string describe_wait(const Way& way) {
  const std::string what_they_did = way.kind == Way::Kind::moves ? "moved" : "made way";
  if (way.gangs.size() == 1)
    return "starts when job " + way.gangs.front()->id.text() + " has " + what_they_did;
  return "starts when " + std::to_string(way.gangs.size()) + " gangs have " + what_they_did;
}

class Pass {
 public:
  Pass(const Snapshot& snapshot, Instant now, const Rules& rules)
      : snapshot_(snapshot),
        now_(now),
        rules_(rules),
        shares_(snapshot),
        claims_(snapshot, now),
        draft_(snapshot),
        fitting_(snapshot.shape_classes, *rules.choice),
        making_way_(snapshot, rules),
        releases_(snapshot, now) {}

  Plan run() && {
    all_take_turns();
    if (rules_.grows && !blocked_) grow_one();
    if (rules_.changes_at && blocked_) {
      for (const JobView* gang : snapshot_.running) {
        if (!gang->ending) draft_.wake_by(rules_.changes_at(*gang));
      }
    }
    if (blocked_) wake_for_ends();
    return std::move(draft_).finish();
  }

 private:
  // Who is waiting for an end waits otherwise once it is near, and once it is late: by the clock alone.
  void wake_for_ends() {
    for (const JobView* gang : snapshot_.running) {
      if (!gang->ending || gang->ends_by == Instant()) continue;
      const Instant near = gang->ends_by - soon_max;
      const Instant late = gang->ends_by + soon_max + 1ms;
      const Instant next = near > now_ ? near : late;
      if (next > now_) draft_.wake_by(next);
    }
  }

  void all_take_turns() {
    if (rules_.shares) {
      Lineup lineup(snapshot_, shares_, rules_.order);
      for (const JobView* job = lineup.next(); job != nullptr && take_turn(*job);) job = lineup.next();
    } else {
      for (const JobView* job : sorted(snapshot_.queued, rules_.order)) {
        if (!take_turn(*job)) return;
      }
    }
  }

  // False if it was the last one.
  bool take_turn(const JobView& job) {
    consider(job);
    return !rules_.last_turn || !rules_.last_turn(job);
  }

  void consider(const JobView& job) {
    if (draft_.starts().size() >= snapshot_.starts_max) return leave_to_next_pass(job);
    const std::int64_t allowed = rules_.shares ? shares_.allowed(job) : no_limit;
    if (allowed != no_limit && least_share(job) > allowed)
      return draft_.wait(job, draft_.say(shares_.describe_limit(job, least_share(job))));
    if (auto places = fitting_.find(claims_, job, allowed)) return start(job, std::move(*places));
    blocked_ = true;
    if (const auto way = making_way_.find(claims_, shares_, job)) return make(*way, job);
    if (rules_.promises && draft_.promises().size() < promises_max) {
      auto found = comes_late(job) ? std::nullopt : releases_.find(claims_, draft_, job, *rules_.choice);
      // Nobody makes way where that is not the sooner one.
      const auto way = making_way_.find_long(claims_, shares_, job);
      if (way && (!found || way->start < found->start || (way->start == found->start && way->gangs.empty())))
        return make(*way, job);
      if (found && found->start - now_ > promise_kept_for) return expect(job, *found);
      if (found) return promise(job, std::move(*found));
    }
    draft_.wait(job, fitting_.why(claims_, job, draft_));
  }

  void leave_to_next_pass(const JobView& job) {
    blocked_ = true;
    if (!left_) left_ = draft_.say("waits until those before it have been started");
    draft_.leave_more();
    draft_.wait(job, *left_);
  }

  void start(const JobView& job, Places places) {
    take(job, places);
    draft_.start(job, std::move(places));
  }

  void make(const Way& way, const JobView& job) {
    Instant start = claims_.ended_by();
    for (const JobView* gang : way.gangs) {
      claims_.stop(*gang);
      shares_.add(*gang, -held_share(*gang));
      draft_.stop(*gang, describe_stop(way, job));
      start = std::max(start, now_ + gang->grace);
    }
    take(job, way.places);
    draft_.soon(job, start);
    draft_.wait(job, draft_.say(way.kind == Way::Kind::ends_already
                                    ? describe_wait(claims_.ending(), claims_.ended_by())
                                    : describe_wait(way)));
  }

  // They hold what they have for long: so does the share of their queue, and what is free is used meanwhile.
  void make(const LongWay& way, const JobView& job) {
    for (const JobView* gang : way.gangs) {
      claims_.stop(*gang);
      draft_.stop(*gang, describe_stop(job));
    }
    for (const JobView* gang : way.others) draft_.wake_by(way.start - gang->grace - soon_max);
    making_way_.promised(way, job);
    Promise promise{job.id, way.start, way.places};
    claims_.promise(job, promise);
    draft_.wait(job, draft_.say("is promised " + describe_nodes(snapshot_.room, promise.places) + " at " +
                                format_instant(promise.start) + " at the latest, when job " +
                                way.last->id.text() + ", which is ending, has ended"));
    draft_.promise(std::move(promise));
  }

  void promise(const JobView& job, Promise promise) {
    claims_.promise(job, promise);
    draft_.wait(
        job, draft_.say("is promised " + describe_nodes(snapshot_.room, promise.places) + " at " +
                        format_instant(promise.start) + ", when running gangs are expected to have ended"));
    draft_.promise(std::move(promise));
  }

  // As one of its shape was found to: what that one waits for it does, too.
  bool comes_late(const JobView& job) const {
    return late_.size() == late_shapes_max || late_.contains(job.shape_class);
  }

  // The room is not kept for it yet: whoever has running gangs that last for months would else keep all the
  // rest of the cluster empty.
  void expect(const JobView& job, const Promise& promise) {
    late_.insert(job.shape_class);
    draft_.wake_by(promise.start - promise_kept_for);
    draft_.wait(job, draft_.say("expects " + describe_nodes(snapshot_.room, promise.places) + " at " +
                                format_instant(promise.start) +
                                ", when running gangs are expected to have ended; until a day before that "
                                "others use the room"));
  }

  void take(const JobView& job, const Places& places) {
    claims_.take(job, places);
    shares_.add(job, share_with(job, places.ranks()));
  }

  void grow_one() {
    const Growth growth = find_growth(snapshot_, now_, claims_.free(), shares_, *rules_.choice);
    draft_.wake_by(growth.wake);
    if (growth.gang == nullptr) return;
    draft_.stop(*growth.gang, "starts again with " + std::to_string(growth.ranks) + " instead of " +
                                  std::to_string(growth.gang->places.ranks()) + " ranks");
  }

  const Snapshot& snapshot_;
  const Instant now_;
  const Rules& rules_;
  // What a turn leaves to the next ones.
  Shares shares_;
  Claims claims_;
  Draft draft_;
  bool blocked_ = false;               // one had no room
  std::set<std::uint32_t> late_;       // shapes whose time is too far away for room to be kept for it
  std::optional<Draft::Reason> left_;  // why those wait that are left to the next pass
  // What is asked in each turn, in this order.
  Fitting fitting_;
  MakingWay making_way_;
  Releases releases_;
};

}  // namespace

Plan run_pass(const Snapshot& snapshot, Instant now, const Rules& rules) {
  return Pass(snapshot, now, rules).run();
}

}  // namespace tutti::sched
