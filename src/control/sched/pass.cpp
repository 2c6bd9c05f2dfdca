#include "control/sched/pass.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "base/index.hpp"

namespace tutti::sched {
namespace {

// A gang that nothing can be found for is not looked for more often than this in one pass, so that the pass
// stays short when a full cluster has a long queue.
constexpr int evictions_tried_max = 64;
constexpr int futures_tried_max = 256;
constexpr int clearings_tried_max = 64;

// The release of what a gang holds, in the future.
struct Release {
  Instant when;
  const JobView* job = nullptr;
  std::size_t start = 0;  // of one that starts in this pass: which; else `runs_already`
};
constexpr std::size_t runs_already = std::numeric_limits<std::size_t>::max();

class Pass {
 public:
  Pass(const Snapshot& snapshot, Instant now, const Rules& rules)
      : snapshot_(snapshot),
        now_(now),
        rules_(rules),
        room_(snapshot.room),
        shares_(snapshot),
        refusals_(snapshot.shape_classes) {}

  Plan run() {
    plan_.revision = snapshot_.revision;
    for (const Held& held : snapshot_.held) wait(held.job, say(held.why));
    if (rules_.shares) {
      Lineup lineup(snapshot_, shares_, rules_.order);
      for (const JobView* job = lineup.next(); job != nullptr && take_turn(*job);) job = lineup.next();
    } else {
      for (const JobView* job : sorted(snapshot_.queued, rules_.order)) {
        if (!take_turn(*job)) break;
      }
    }
    if (rules_.grows && !blocked_) grow_one();
    if (rules_.changes_at && blocked_) {
      for (const JobView* job : snapshot_.running) {
        if (!job->ending) plan_.wake = std::min(plan_.wake, rules_.changes_at(*job));
      }
    }
    std::sort(waiting_.jobs.begin(), waiting_.jobs.end(),
              [](const Waiting::Entry& a, const Waiting::Entry& b) { return a.job < b.job; });
    plan_.waiting = std::make_shared<const Waiting>(std::move(waiting_));
    return std::move(plan_);
  }

 private:
  // What did not fit once does not fit later in the same pass: room only shrinks.
  struct Refusal {
    bool now = false;     // with all of the room
    bool around = false;  // with what is not promised
    std::uint32_t why = 0;
    std::uint32_t why_around = 0;
  };

  // False if it was the last one.
  bool take_turn(const JobView& job) {
    consider(job);
    return !rules_.last_turn || !rules_.last_turn(job);
  }

  void consider(const JobView& job) {
    const std::int64_t least = std::int64_t{counts_of(*job.shape).back()} * job.shape->gpu_share;
    const std::int64_t allowed = shares_.allowed(job);
    if (rules_.shares && allowed != no_limit && least > allowed)
      return wait(job.id, say(shares_.describe_limit(job, least)));
    Refusal& refusal = refusals_[at(job.shape_class)];
    const bool around = goes_around(job);
    if (!(around ? refusal.around : refusal.now)) {
      if (auto places = find(around ? *around_ : room_, job, rules_.shares ? allowed : no_limit))
        return start(job, std::move(*places));
      // A limit is the job's own: it says nothing about others of the same shape.
      if (!rules_.shares || allowed == no_limit) {
        refusal.around = true;
        refusal.now = refusal.now || !around;
      }
    }
    blocked_ = true;
    if (rules_.displaces && evictions_tried_ < evictions_tried_max &&
        !cannot_evict_.contains(evicting_as(job))) {
      ++evictions_tried_;
      if (evict_for(job) || move_for(job)) return;
      cannot_evict_.insert(evicting_as(job));
    }
    if (rules_.promises && plan_.promises.size() < promises_max && promise(job)) return;
    const bool may_be_promised = around && !refusal.now;
    std::uint32_t& why = may_be_promised ? refusal.why_around : refusal.why;
    if (why == 0) why = say(may_be_promised ? describe_around(job) : describe_refusal(room_, *job.shape)) + 1;
    wait(job.id, why - 1);
  }

  // There may be room that is only promised to another.
  std::string describe_around(const JobView& job) const {
    if (!place(room_, *job.shape, counts_of(*job.shape).back(), *rules_.choice))
      return describe_refusal(room_, *job.shape);
    const auto first = std::min_element(plan_.promises.begin(), plan_.promises.end(),
                                        [](const Promise& a, const Promise& b) { return a.start < b.start; });
    return std::string("the room for it is promised to ") +
           (plan_.promises.size() > 1 ? "others, first to " : "") + "job " + first->job.text() + " at " +
           format_instant(first->start) + ", and it is not known to be over by then";
  }

  // Must it leave alone what is promised? Not if it is over by then.
  bool goes_around(const JobView& job) const {
    if (!around_) return false;
    return job.expected == Duration::zero() || now_ + job.expected > promised_first_;
  }

  std::optional<Places> find(const Room& room, const JobView& job, std::int64_t allowed) const {
    for (const std::int32_t ranks : counts_of(*job.shape)) {
      if (allowed != no_limit && std::int64_t{ranks} * job.shape->gpu_share > allowed) continue;
      if (auto places = place(room, *job.shape, ranks, *rules_.choice)) return places;
    }
    return std::nullopt;
  }

  void start(const JobView& job, Places places) {
    claim(job, places);
    plan_.starts.push_back({job.id, job.attempt, std::move(places)});
    started_.push_back(&job);
  }

  // ---- making way

  // Those for whom the same gangs would make way, or fewer: a user's gangs come in the order of their cost.
  using EvictingAs = std::tuple<std::uint32_t, QueueIndex, std::int32_t, UserIndex>;
  static EvictingAs evicting_as(const JobView& job) {
    return {job.shape_class, job.queue, job.priority, job.user};
  }

  const std::vector<const JobView*>& victims() {
    if (!victims_) {
      victims_.emplace();
      for (const JobView* job : snapshot_.running) {
        if (!job->ending) victims_->push_back(job);
      }
      victims_ = sorted(std::move(*victims_), rules_.stop_order);
    }
    return *victims_;
  }

  // The room when all that ends now has ended, less what of it is spoken for.
  const Room& soon() {
    if (!soon_) {
      soon_ = room_;
      for (const JobView* running : snapshot_.running) {
        if (running->ending) soon_->give(*running->shape, running->places);
      }
    }
    return *soon_;
  }

  // When all that ends now has ended, at the latest.
  Instant ended_by() const {
    Instant latest = now_;
    for (const JobView* running : snapshot_.running) {
      if (running->ending) latest = std::max(latest, now_ + running->grace);
    }
    return latest;
  }

  // The same less what is promised, for a gang that must leave that alone.
  Room soon_around() const {
    Room room = *around_;
    for (const JobView* running : snapshot_.running) {
      if (running->ending || stopped_.contains(running->id)) room.give(*running->shape, running->places);
    }
    return room;
  }

  // True if it will start when others have ended, and the room for it is spoken for.
  bool evict_for(const JobView& job) {
    const std::int32_t ranks = counts_of(*job.shape).back();
    Room trial = soon();
    if (goes_around(job)) trial = soon_around();
    if (auto places = place(trial, *job.shape, ranks, *rules_.choice)) {
      claim(job, *places);
      wait(job.id, say("starts when gangs that are ending have ended"));
      plan_.soon.push_back({job.id, ended_by()});
      return true;
    }
    std::vector<const JobView*> chosen;
    std::optional<Places> places;
    for (const JobView* victim : victims()) {
      if (stopped_.contains(victim->id) || !rules_.displaces(shares_, job, *victim)) continue;
      trial.give(*victim->shape, victim->places);
      chosen.push_back(victim);
      if ((places = place(trial, *job.shape, ranks, *rules_.choice))) break;
    }
    if (!places) return false;
    spare_the_unneeded(job, ranks, trial, chosen, *places);
    stop(chosen, "makes way for job " + job.id.text());
    start_after(chosen, job, *places, "made way");
    return true;
  }

  void stop(const std::vector<const JobView*>& gangs, const std::string& why) {
    for (const JobView* gang : gangs) {
      soon_->give(*gang->shape, gang->places);
      stopped_.insert(gang->id);
      plan_.stops.push_back({gang->id, gang->attempt, why});
      shares_.add(*gang, -share_of(*gang));
    }
  }

  void start_after(const std::vector<const JobView*>& gangs, const JobView& job, const Places& places,
                   const std::string& what_they_did) {
    claim(job, places);
    Instant start = ended_by();
    for (const JobView* gang : gangs) start = std::max(start, now_ + gang->grace);
    plan_.soon.push_back({job.id, start});
    wait(job.id, say(gangs.size() == 1
                         ? "starts when job " + gangs.front()->id.text() + " has " + what_they_did
                         : "starts when " + std::to_string(gangs.size()) + " gangs have " + what_they_did));
  }

  // ---- moving

  // A node on which all that runs could as well run elsewhere.
  struct Clearing {
    double devices = 0;  // in use
    std::vector<const JobView*> gangs;
    bool fixed = false;  // something there stays
  };

  // Those with the least to move first.
  const std::vector<Clearing>& clearings() {
    if (clearings_) return *clearings_;
    std::vector<Clearing> nodes(static_cast<std::size_t>(room_.nodes()));
    for (const JobView* running : snapshot_.running) {
      // One that runs with fewer ranks than it wants would come back with more.
      const bool moves = !running->ending && running->yields && running->places.slots.size() == 1 &&
                         running->places.ranks() == running->shape->ranks;
      for (const Places::Slot& slot : running->places.slots) {
        Clearing& here = nodes[static_cast<std::size_t>(slot.node)];
        here.fixed = here.fixed || !moves;
        if (here.fixed) continue;
        here.devices += devices_of(*running);
        here.gangs.push_back(running);
      }
    }
    std::erase_if(nodes, [](const Clearing& node) { return node.fixed || node.gangs.empty(); });
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const Clearing& a, const Clearing& b) { return a.devices < b.devices; });
    return clearings_.emplace(std::move(nodes));
  }

  // The least that it does with, or what it has.
  static std::int64_t size_of(const JobView& job) {
    const std::int32_t ranks = job.places.slots.empty() ? counts_of(*job.shape).back() : job.places.ranks();
    return std::int64_t{ranks} * job.shape->gpu_share;
  }

  // May all of these move for the sake of the job?
  bool may_move(const std::vector<const JobView*>& gangs, const JobView& job) const {
    return std::all_of(gangs.begin(), gangs.end(), [&](const JobView* gang) {
      return !stopped_.contains(gang->id) && size_of(*gang) < size_of(job) &&
             rules_.moves(shares_, job, *gang);
    });
  }

  // There is room enough, but in pieces: smaller gangs go elsewhere, all of them at once. True if they do.
  bool move_for(const JobView& job) {
    if (!rules_.moves || goes_around(job)) return false;
    const std::int32_t ranks = counts_of(*job.shape).back();
    Room trial = soon();
    std::vector<const JobView*> chosen;
    std::optional<Places> places;
    int tried = 0;
    for (const Clearing& clearing : clearings()) {
      if (places || ++tried > clearings_tried_max) break;
      if (!may_move(clearing.gangs, job)) continue;
      for (const JobView* gang : clearing.gangs) trial.give(*gang->shape, gang->places);
      chosen.insert(chosen.end(), clearing.gangs.begin(), clearing.gangs.end());
      if (may_hold(trial, *job.shape, ranks)) places = place(trial, *job.shape, ranks, *rules_.choice);
    }
    if (!places) return false;
    spare_the_unneeded(job, ranks, trial, chosen, *places);
    // They go to what is free now and promised to nobody.
    Room free = around_ ? *around_ : room_;
    for (const JobView* gang : chosen) free.give(*gang->shape, gang->places);
    if (!free.fits(*job.shape, *places)) return false;
    free.take(*job.shape, *places);
    if (!all_fit(std::move(free), chosen)) return false;
    stop(chosen, "moves, so that there is room for job " + job.id.text());
    start_after(chosen, job, *places, "moved");
    return true;
  }

  bool all_fit(Room room, std::vector<const JobView*> gangs) const {
    std::stable_sort(gangs.begin(), gangs.end(),
                     [](const JobView* a, const JobView* b) { return devices_of(*a) > devices_of(*b); });
    for (const JobView* gang : gangs) {
      const auto places = place(room, *gang->shape, gang->places.ranks(), *rules_.choice);
      if (!places) return false;
      room.take(*gang->shape, *places);
    }
    return true;
  }

  // Whoever was chosen and is not needed after all goes on, the dearest first.
  void spare_the_unneeded(const JobView& job, std::int32_t ranks, Room& trial,
                          std::vector<const JobView*>& chosen, Places& places) const {
    for (std::size_t left = chosen.size(); left-- > 0 && chosen.size() > 1;) {
      trial.take(*chosen[left]->shape, chosen[left]->places);
      if (auto without = place(trial, *job.shape, ranks, *rules_.choice)) {
        places = std::move(*without);
        chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(left));
      } else {
        trial.give(*chosen[left]->shape, chosen[left]->places);
      }
    }
  }

  // What it will take is spoken for, whether it is free yet or not.
  void claim(const JobView& job, const Places& places) {
    occupy(job, places);
    shares_.add(job, std::int64_t{places.ranks()} * job.shape->gpu_share);
  }

  void occupy(const JobView& job, const Places& places) {
    room_.take(*job.shape, places);
    if (around_) around_->take(*job.shape, places);
    if (soon_) soon_->take(*job.shape, places);
  }

  static std::int64_t share_of(const JobView& running) {
    return std::int64_t{running.places.ranks()} * running.shape->gpu_share;
  }

  // ---- promises

  // All that will become free, in the order of time, of what runs and of what was started just now.
  const std::vector<Release>& releases() {
    if (releases_.empty()) {
      for (const JobView* job : snapshot_.running) {
        const Instant end = job->ending ? now_ + job->grace : expected_end(*job, job->started_at, now_);
        if (!stopped_.contains(job->id)) releases_.push_back({end, job, runs_already});
      }
    }
    for (; releases_of_starts_ < started_.size(); ++releases_of_starts_) {
      const JobView* job = started_[releases_of_starts_];
      releases_.push_back({expected_end(*job, now_, now_), job, releases_of_starts_});
    }
    std::stable_sort(releases_.begin(), releases_.end(),
                     [](const Release& a, const Release& b) { return a.when < b.when; });
    return releases_;
  }

  const Places& places_of(const Release& release) const {
    return release.start == runs_already ? release.job->places : plan_.starts[release.start].places;
  }

  bool promise(const JobView& job) {
    const std::int32_t ranks = counts_of(*job.shape).back();
    Room later = around_ ? *around_ : room_;
    int tries = 0;
    const auto& all = releases();
    for (std::size_t next = 0; next < all.size() && tries < futures_tried_max;) {
      const Instant when = all[next].when;
      if (when == never) break;
      for (; next < all.size() && all[next].when == when; ++next)
        later.give(*all[next].job->shape, places_of(all[next]));
      if (!may_hold(later, *job.shape, ranks)) continue;
      ++tries;
      auto places = place(later, *job.shape, ranks, *rules_.choice);
      if (!places) continue;
      if (!around_) around_ = room_, promised_first_ = when;
      around_->take(*job.shape, *places);
      promised_first_ = std::min(promised_first_, when);
      wait(job.id, say("is promised " + describe_nodes(*places) + " at " + format_instant(when) +
                       ", when running gangs are expected to have ended"));
      plan_.promises.push_back({job.id, when, std::move(*places)});
      return true;
    }
    return false;
  }

  std::string describe_nodes(const Places& places) const {
    std::string text = "node " + room_.name(places.slots.front().node);
    if (places.slots.size() == 1) return text;
    return std::to_string(places.slots.size()) + " nodes from " + room_.name(places.slots.front().node) +
           " to " + room_.name(places.slots.back().node);
  }

  // ---- growing

  // One at a time: whatever is free then is counted again for the next.
  void grow_one() {
    for (const JobView* job : snapshot_.running) {
      if (job->ending) return;
    }
    for (const JobView* job : snapshot_.running) {
      const std::int32_t ranks = job->places.ranks();
      if (ranks >= job->shape->ranks) continue;
      if (now_ - job->started_at < grow_after) {
        plan_.wake = std::min(plan_.wake, job->started_at + grow_after);
        continue;
      }
      Room room = room_;
      room.give(*job->shape, job->places);
      std::int64_t allowed = shares_.allowed(*job);
      if (allowed != no_limit) allowed += std::int64_t{ranks} * job->shape->gpu_share;
      const auto places = find(room, *job, allowed);
      if (!places || places->ranks() <= ranks) continue;
      plan_.stops.push_back({job->id, job->attempt,
                             "starts again with " + std::to_string(places->ranks()) + " instead of " +
                                 std::to_string(ranks) + " ranks"});
      return;
    }
  }

  // ---- what is said

  std::uint32_t say(std::string why) {
    waiting_.whys.push_back(std::move(why));
    return static_cast<std::uint32_t>(waiting_.whys.size() - 1);
  }
  void wait(JobId job, std::uint32_t why) { waiting_.jobs.push_back({job, why}); }

  const Snapshot& snapshot_;
  const Instant now_;
  const Rules& rules_;
  Room room_;                   // as it becomes
  std::optional<Room> around_;  // the same without what is promised; once something is
  Instant promised_first_ = never;
  Shares shares_;
  std::vector<Refusal> refusals_;  // by shape class
  bool blocked_ = false;
  int evictions_tried_ = 0;
  std::set<EvictingAs> cannot_evict_;
  std::optional<std::vector<Clearing>> clearings_;
  std::optional<std::vector<const JobView*>> victims_;
  std::set<JobId> stopped_;
  std::optional<Room> soon_;  // once something has to make way
  std::vector<const JobView*> started_;
  std::vector<Release> releases_;
  std::size_t releases_of_starts_ = 0;
  Waiting waiting_;
  Plan plan_;
};

}  // namespace

const std::string* Waiting::find(JobId job) const {
  const auto found = std::lower_bound(jobs.begin(), jobs.end(), job,
                                      [](const Entry& entry, JobId id) { return entry.job < id; });
  if (found == jobs.end() || found->job != job) return nullptr;
  return &whys[found->why];
}

Instant expected_end(const JobView& job, Instant start, Instant now) {
  if (job.expected == Duration::zero()) return never;
  if (start + job.expected > now) return start + job.expected;
  // Past its estimate: what has run for so long is expected to run as long again.
  return now + std::max<Duration>(now - start, 1s);
}

double devices_of(const JobView& job) {
  const std::int32_t ranks = job.places.slots.empty() ? job.shape->ranks : job.places.ranks();
  return static_cast<double>(ranks) * job.shape->gpu_share / whole_share;
}

double served_by(const JobView& job, Instant now) {
  if (job.places.slots.empty()) return job.served;
  return job.served + devices_of(job) * std::chrono::duration<double>(now - job.started_at).count();
}

Plan run_pass(const Snapshot& snapshot, Instant now, const Rules& rules) {
  return Pass(snapshot, now, rules).run();
}

}  // namespace tutti::sched
