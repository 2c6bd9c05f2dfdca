// A clock may be set: by a person, by a service that keeps it right, or because its machine slept. What has
// begun takes as long as it would have: a limit comes neither sooner nor later, and nobody is charged for
// time that nobody had.
#include <algorithm>
#include <utility>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

// What a node counts and the controller's clock may be as far apart: messages take their time.
constexpr Duration apart_max = 1min;
// The most that a clock is believed to have been set back while nobody looked.
constexpr Duration set_back_max = std::chrono::hours(24);

void move(Instant& at, Duration by) {
  if (at != Instant()) at += by;
}

void move(std::set<std::pair<Instant, JobId>>& all, Duration by) {
  std::set<std::pair<Instant, JobId>> moved;
  for (const auto& [at, id] : all) moved.emplace_hint(moved.end(), at + by, id);
  all = std::move(moved);
}

}  // namespace

void Machine::move_start(Job& job, Duration by) {
  for (Instant* at :
       {&job.started_at, &job.running_at, &job.witness_since, &job.ended_at, &job.told_at, &job.saved_at})
    move(*at, by);
  touch(job);
}

// Nobody was told to end later than now.
void Machine::told_by_now(Job& job) {
  if (job.told_at <= now_) return;
  job.told_at = now_;
  touch(job);
}

// Nobody has asked for a job later than now: it would wait behind all that come until then. Most of the
// waiting ones have a date that was right, and stay as they are stored.
void Machine::asked_by_now(Job& job) {
  if (job.submitted_at <= now_ && job.queued_at <= now_) return;
  job.submitted_at = std::min(job.submitted_at, now_);
  job.queued_at = std::min(job.queued_at, now_);
  touch(job);
}

// Times of another start of the machine, or of another machine, stay as they are: nobody knows how its clock
// was set meanwhile, and the nodes tell how long attempts have run. Only from the future nothing comes: it
// would end never.
//
// When nodes were heard is not moved: leases begin anew with whoever drives this.
void Machine::on(const ClockSet& event) {
  const bool same = !event.clock.boot.empty() && event.clock.boot == state_.clock.boot;
  const Duration by = same ? event.clock.offset - state_.clock.offset : Duration::zero();
  state_.clock = event.clock;
  // Where nothing depends on it, it is stored with what comes next.
  effects_.cluster = by != Duration::zero() || !state_.active.empty();
  for (const JobId id : state_.holding) {
    Job& job = state_.jobs.at(id);
    if (by != Duration::zero()) move_start(job, by);
    if (job.started_at > now_) move_start(job, now_ - job.started_at);
    told_by_now(job);
  }
  for (const JobId id : state_.active) asked_by_now(state_.jobs.at(id));
  if (by == Duration::zero()) return;
  for (auto& [name, node] : state_.nodes) {
    move(node.asked_at, by);
    move(node.told_as_of, by);
    move(node.vouched_at, by);
    if (node.back_at == Instant() && node.lost_at == Instant()) continue;
    move(node.back_at, by);
    move(node.lost_at, by);
    touch(node);
  }
  for (const JobId id : state_.held_back) {
    Job& job = state_.jobs.at(id);
    if (is_paused(state_, job)) move(job.not_before, by);
    move(job.too_small_at, by);
    touch(job);
  }
  move(state_.pauses, by);
  move(state_.room_asked_again, by);
  state_.ended.move(by);
  state_.submit_keys.move(by);
  state_.index.moved(by);
  state_.loaded_at += by;
  state_.notes_due += by;
  move_services(by);
  state_.standing = nullptr;
  effects_.schedule = true;
}

// While the controller was away its clock may have been set, or its machine replaced; but what a node counts
// goes on as long as the rank does.
void Machine::hear_how_long(Job& job, const RankReport& report) {
  if (report.status.state != RankState::started || report.ran == Duration::zero()) return;
  const Instant since = now_ - report.ran;
  if (job.witness < 0) {
    job.witness = report.rank;
    job.witness_since = since;
    state_.noted.insert(job.id);
  }
  const Duration by = since - job.witness_since;
  if (report.rank != job.witness || (by <= apart_max && by >= -apart_max)) return;
  // Whatever a node says: nothing began before somebody asked for it, be it that the clock was set back
  // since.
  const Instant first = std::min(job.submitted_at, now_) - set_back_max;
  // Nor later than this controller knows of it: who would like to have begun later is not believed.
  const Instant last = std::min(now_, std::max(job.started_at, state_.loaded_at));
  move_start(job, std::clamp(job.started_at + by, first, std::max(first, last)) - job.started_at);
  told_by_now(job);
}

}  // namespace tutti::cluster
