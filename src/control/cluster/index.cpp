#include "control/cluster/index.hpp"

#include <algorithm>

#include "control/cluster/model.hpp"

namespace tutti::cluster {

Phase phase_of(const Job& job) {
  if (job.finished()) return Phase::ended;
  return job.placed() ? Phase::running : Phase::waiting;
}

Phase Index::phase_known(sched::JobId job) const {
  if (floor_.runs(job)) return Phase::running;
  return waiting_.contains(job) ? Phase::waiting : Phase::unknown;
}

void Index::tell(const Change& change) {
  habits_.changed(change);
  usage_.changed(change);
  residents_.changed(change);
  followers_.changed(change);
  if (change.leaves(Phase::waiting)) waiting_.erase(change.job.id);
  if (change.after == Phase::waiting) habits_.fill(change.job, waiting_[change.job.id]);
  floor_.changed(change, habits_);
}

void Index::changed(const State& state, const Job& job, Instant now) {
  const Change change{state, job, phase_known(job.id), phase_of(job), now};
  // One that has ended is no longer known, and its end was counted.
  if (change.before == Phase::unknown && change.after == Phase::ended) return;
  tell(change);
}

void Index::rebuild(const State& state, Instant now) {
  *this = Index();
  // In the order in which they ended, so that what was long ago counts as that.
  std::vector<const Job*> ended;
  for (const auto& [id, job] : state.jobs) {
    if (job.finished()) {
      ended.push_back(&job);
    } else {
      tell({state, job, Phase::unknown, phase_of(job), now});
    }
  }
  std::stable_sort(ended.begin(), ended.end(),
                   [](const Job* a, const Job* b) { return a->finished_at < b->finished_at; });
  // What a clock that was wrong has put into the future would outweigh all that comes until then.
  for (const Job* job : ended) {
    tell({state, *job, Phase::unknown, Phase::ended, job->finished_at});
    usage_.remember(*job, std::min(job->finished_at, now));
  }
  for (const auto& [who, past] : state.past_use)
    usage_.remember(who.first, who.second, {past.amount, std::min(past.at, now)});
  for (const auto& [id, job] : state.jobs) {
    if (!job.finished() && job.served != 0) usage_.remember(job, now);
  }
}

void Index::planned(const sched::Plan& plan) { said_ = {plan.waiting, plan.wake}; }

void Index::knows(sched::JobId job, Duration remaining) {
  habits_.knows(job, remaining);
  if (const auto view = waiting_.find(job); view != waiting_.end()) view->second.remaining = remaining;
}

void Index::forget_old_shapes(const State& state) {
  if (!habits_.overflows()) return;
  habits_.forget();
  for (Views* views : {&waiting_, &floor_.running(state)}) {
    for (auto& [id, view] : *views) habits_.fill(state.jobs.at(id), view);
  }
  habits_.refilled();
}

Result<> Index::check(const State& state) const {
  Index fresh;
  fresh.rebuild(state, {});
  if (!same_views(waiting_, fresh.waiting_)) return failed("the index of waiting jobs is wrong");
  if (residents_ != fresh.residents_) return failed("the index of nodes and ports is wrong");
  if (followers_ != fresh.followers_) return failed("the index of who waits for whom is wrong");
  if (!usage_.same_in_use(fresh.usage_)) return failed("what queues and users use is counted wrong");
  if (auto checked = floor_.check(state, std::move(fresh.floor_)); !checked) return checked;
  return habits_.check(waiting_, floor_.running());
}

}  // namespace tutti::cluster
