// tutti, the default. Assumes nothing about how long gangs run beyond what their time limits and their users'
// earlier jobs say.
//
// Queues come first that have less than their guarantee, then those that had the least for their weight; in a
// queue the higher priority, then the user who had the least. Among a user's gangs it is time-sharing in
// three levels: a gang that has had much of the machine, large ones sooner than small ones, makes way for
// those that had little, if it says that it can (`yields`). Inside a level what was begun is finished first,
// and equals never displace each other: as levels only rise, a gang is put aside at most twice for each
// newcomer, and nobody takes turns.
#include <algorithm>
#include <array>
#include <cmath>

#include "sched/least_waste.hpp"
#include "sched/policies.hpp"

namespace tutti::sched {
namespace {

// Seconds of one device after which a gang leaves a level. A gang of n devices ages n√n times as fast: 8 h
// and 64 h are 21 minutes and 2.8 hours for eight.
constexpr std::array<double, 2> level_ends{8 * 3600.0, 64 * 3600.0};

// A gang that needs several nodes finds them free at once only if others make way, which those of its own
// level do not: after so long in the queue they do.
constexpr Duration patience = 21 * 24h;

double weight_of(const JobView& job) { return std::sqrt(devices_of(job)); }

int level_of(const JobView& job, Instant now) {
  const double aged = served_by(job, now) * weight_of(job);
  return static_cast<int>(
      std::count_if(level_ends.begin(), level_ends.end(), [&](double end) { return aged >= end; }));
}

double run_seconds(const JobView& job, Instant now) {
  const double devices = devices_of(job);
  return devices > 0 ? served_by(job, now) / devices : 0;
}

// What is lost if it is stopped now, in device-seconds.
double loss(const JobView& job, Instant now) {
  const Instant safe = std::max(job.saved_at, job.started_at);
  return devices_of(job) * std::chrono::duration<double>(now - safe).count();
}

class Tutti {
 public:
  Tutti(const Snapshot& snapshot, Instant now) : now_(now), widest_(snapshot.room.widest()) {}

  OrderKey order(const JobView& job) const {
    const bool patient = !lost_patience(job);
    return {level_of(job, now_), patient ? 1 : 0, patient ? -run_seconds(job, now_) : 0, job.submitted_at,
            job.id};
  }

  bool displaces(const Shares& shares, const JobView& waiting, const JobView& running) const {
    const auto share = [](const JobView& job, std::int32_t ranks) {
      return std::int64_t{ranks} * job.shape->gpu_share;
    };
    if (waiting.queue != running.queue) {
      // What a queue only borrows goes back to those to whom it is guaranteed.
      return shares.guaranteed(waiting, share(waiting, counts_of(*waiting.shape).back()), running) &&
             shares.borrowed(running, share(running, running.places.ranks()), waiting);
    }
    if (running.priority != waiting.priority) return running.priority < waiting.priority;
    if (!running.yields) return false;
    const int of_waiting = level_of(waiting, now_);
    const int of_running = level_of(running, now_);
    if (of_running != of_waiting) return of_running > of_waiting;
    return lost_patience(waiting) && !lost_patience(running) && running.submitted_at > waiting.submitted_at;
  }

  // The least important first, then those that had the most, then what loses the least.
  OrderKey stop_order(const JobView& job) const {
    return {job.priority, -level_of(job, now_), loss(job, now_), job.submitted_at, job.id};
  }

  // Its level rises while it runs.
  Instant changes_at(const JobView& job) const {
    const int level = level_of(job, now_);
    const double pace = devices_of(job) * weight_of(job);
    if (!job.yields || pace <= 0 || static_cast<std::size_t>(level) == level_ends.size()) return never;
    const double missing =
        level_ends[static_cast<std::size_t>(level)] - served_by(job, now_) * weight_of(job);
    return now_ + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(missing / pace)) + 1ms;
  }

 private:
  bool lost_patience(const JobView& job) const {
    const Instant until = job.places.slots.empty() ? now_ : job.started_at;
    return devices_of(job) > widest_ && until - job.queued_at >= patience;
  }

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
  rules.changes_at = [&](const JobView& job) { return tutti.changes_at(job); };
  rules.last_turn = std::move(last_turn);
  return run_pass(snapshot, now, rules);
}

}  // namespace tutti::sched
