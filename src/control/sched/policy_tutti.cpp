// tutti, the default. Assumes nothing about how long gangs run beyond what their time limits say and what
// gangs of their kind took (outlook.hpp).
//
// Queues come first that have less than their guarantee, then those that had the least for their weight; in a
// queue the higher priority, then the user who had the least. Among a user's gangs those come first that are
// likely to be over the soonest, for each device that they hold. A gang that says that it can (`yields`)
// makes way for one that is likely to be over in a fifth of its time: as what runs comes nearer to its end,
// the two change places again only if the newcomer has proved to be several times as long as it looked. It
// also moves to other nodes if a larger one then has room in one piece.
#include <algorithm>
#include <cmath>
#include <map>

#include "control/sched/least_waste.hpp"
#include "control/sched/outlook.hpp"
#include "control/sched/policies.hpp"

namespace tutti::sched {
namespace {

// How much sooner one must be over to displace another.
constexpr double much_sooner = 5;

// A gang that runs looks longer the longer it runs. It is looked at again when it is a tenth older.
constexpr double older_by = 0.1;
constexpr Duration looked_at_after = 5min;
constexpr double longest_s = 30 * 24 * 3600;

// A gang that yields runs on for so long before others displace it, and before it is moved.
constexpr Duration undisturbed = 10min;
constexpr Duration unmoved = 45min;

// A gang that needs several nodes finds them free at once only if others make way: after so long in the queue
// they do.
constexpr Duration patience = 21 * 24h;

// What is lost if it is stopped now, in device-seconds.
double loss(const JobView& job, Instant now) {
  const Instant safe = std::max(job.saved_at, job.started_at);
  return devices_of(job) * std::chrono::duration<double>(now - safe).count();
}

class Tutti {
 public:
  Tutti(const Snapshot& snapshot, Instant now)
      : outlook_(snapshot, now), now_(now), widest_(snapshot.room.widest()) {}

  OrderKey order(const JobView& job) const {
    const bool patient = !lost_patience(job);
    return {patient ? 1 : 0, patient ? outlook_.cost(job) : 0, 0, job.submitted_at, job.id};
  }

  bool displaces(const Shares& shares, const JobView& waiting, const JobView& running) const {
    if (waiting.queue != running.queue) {
      // What a queue only borrows goes back to those to whom it is guaranteed.
      return shares.guaranteed(waiting, least_share(waiting), running) &&
             shares.borrowed(running, held_share(running), waiting);
    }
    if (running.priority != waiting.priority) return running.priority < waiting.priority;
    if (!running.yields || lost_patience(running)) return false;
    if (lost_patience(waiting) && running.submitted_at > waiting.submitted_at) return true;
    if (now_ - running.started_at < undisturbed || !stays_ahead(shares, waiting, running)) return false;
    return cost(waiting) * much_sooner < cost(running);
  }

  // The least important first, then those that yield, the longest by far before the shorter ones, then what
  // loses the least.
  OrderKey stop_order(const JobView& job) const {
    const double length = std::floor(std::log(std::max(cost(job), 1.0)) / std::log(much_sooner));
    return {job.priority, job.yields ? -1 - length : 0, loss(job, now_), job.submitted_at, job.id};
  }

  bool moves(const Shares& shares, const JobView& waiting, const JobView& running) const {
    return running.yields && now_ - running.started_at >= unmoved && running.queue == waiting.queue &&
           running.priority <= waiting.priority && stays_ahead(shares, waiting, running);
  }

  Instant changes_at(const JobView& job) const {
    if (!job.yields) return never;
    const double until = std::min(run_seconds(job, now_) * older_by, longest_s);
    Instant next =
        now_ + std::max<Duration>(looked_at_after,
                                  std::chrono::duration_cast<Duration>(std::chrono::duration<double>(until)));
    for (const Duration after : {undisturbed, unmoved}) {
      if (job.started_at + after > now_) next = std::min(next, job.started_at + after);
    }
    return next;
  }

 private:
  // Asked again for each pair of gangs.
  double cost(const JobView& job) const {
    const auto [at, added] = costs_.try_emplace(job.id, 0);
    if (added) at->second = outlook_.cost(job);
    return at->second;
  }

  // Will the waiting one have its turn first, too, when the other is back in the queue? Else it would take
  // its place again at once.
  static bool stays_ahead(const Shares& shares, const JobView& waiting, const JobView& running) {
    if (waiting.user == running.user) return true;
    const auto has = [&](const JobView& job) {
      return static_cast<double>(shares.user(job.user).in_use) + shares.user(job.user).past;
    };
    return has(waiting) < has(running) - static_cast<double>(held_share(running));
  }

  bool lost_patience(const JobView& job) const {
    const Instant until = job.places.slots.empty() ? now_ : job.started_at;
    return devices_of(job) > widest_ && until - job.queued_at >= patience;
  }

  Outlook outlook_;
  mutable std::map<JobId, double> costs_;
  Instant now_;
  std::int32_t widest_;
};

}  // namespace

Plan schedule_tutti(const Snapshot& snapshot, Instant now) { return schedule_tutti(snapshot, now, {}); }

Plan schedule_tutti(const Snapshot& snapshot, Instant now, LastTurn last_turn) {
  const Tutti tutti(snapshot, now);
  const LeastWaste least_waste(*snapshot.mix);
  Rules rules;
  rules.order = [&](const JobView& job) { return tutti.order(job); };
  rules.choice = &least_waste;
  rules.shares = rules.promises = rules.grows = true;
  rules.displaces = [&](const Shares& shares, const JobView& waiting, const JobView& running) {
    return tutti.displaces(shares, waiting, running);
  };
  rules.stop_order = [&](const JobView& job) { return tutti.stop_order(job); };
  rules.moves = [&](const Shares& shares, const JobView& waiting, const JobView& running) {
    return tutti.moves(shares, waiting, running);
  };
  rules.changes_at = [&](const JobView& job) { return tutti.changes_at(job); };
  rules.last_turn = std::move(last_turn);
  return run_pass(snapshot, now, rules);
}

}  // namespace tutti::sched
