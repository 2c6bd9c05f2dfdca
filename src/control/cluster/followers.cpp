#include "control/cluster/followers.hpp"

#include <algorithm>

#include "control/cluster/model.hpp"

namespace tutti::cluster {
namespace {

const Job* unfinished_job(const State& state, sched::JobId id) {
  const auto job = state.jobs.find(id);
  return job == state.jobs.end() || job->second.finished() ? nullptr : &job->second;
}

bool ended_without_success(const State& state, sched::JobId id) {
  const auto job = state.jobs.find(id);
  return job != state.jobs.end() && job->second.finished() && job->second.state != JobState::succeeded;
}

}  // namespace

void Followers::changed(const Change& change) {
  const bool comes = change.before == Phase::unknown && change.after != Phase::ended;
  const bool goes = change.before != Phase::unknown && change.after == Phase::ended;
  if (comes) add(change);
  if (goes) {
    remove(change);
    tell_followers(change);
  }
}

void Followers::add(const Change& change) {
  const Job& job = change.job;
  Wait wait;
  for (std::size_t at = 0; at < job.spec.after.size(); ++at) {
    const Dependency& dependency = job.spec.after[at];
    if (unfinished_job(change.state, dependency.job) == nullptr) {
      if (change.after == Phase::waiting && dependency.success &&
          ended_without_success(change.state, dependency.job))
        doomed_.try_emplace(job.id, dependency.job);
      continue;
    }
    auto [follower, added] = followers_[dependency.job].try_emplace(job.id, false);
    follower->second = follower->second || dependency.success;
    if (!added) continue;
    if (wait.unfinished++ == 0) wait.first = at;
  }
  if (wait.unfinished == 0) return;
  dependencies_.add(job.spec.user, wait.unfinished);
  waits_.emplace(job.id, wait);
}

void Followers::remove(const Change& change) {
  const Job& job = change.job;
  doomed_.erase(job.id);
  if (waits_.erase(job.id) == 0) return;
  for (const Dependency& dependency : job.spec.after) {
    const auto known = followers_.find(dependency.job);
    if (known == followers_.end() || known->second.erase(job.id) == 0) continue;
    dependencies_.remove(job.spec.user, 1);
    if (known->second.empty()) followers_.erase(known);
  }
}

void Followers::tell_followers(const Change& change) {
  const auto told = followers_.extract(change.job.id);
  if (told.empty()) return;
  const bool success = change.job.state == JobState::succeeded;
  for (const auto& [id, needs_success] : told.mapped()) {
    if (needs_success && !success) doomed_.try_emplace(id, change.job.id);
    const JobSpec& follower = change.state.jobs.at(id).spec;
    dependencies_.remove(follower.user, 1);
    const auto wait = waits_.find(id);
    if (--wait->second.unfinished == 0) {
      waits_.erase(wait);
      continue;
    }
    // It goes forward only: all the ends that a job waits for cost one walk along its list.
    std::size_t& first = wait->second.first;
    while (first < follower.after.size() &&
           unfinished_job(change.state, follower.after[first].job) == nullptr)
      ++first;
  }
}

bool operator==(const Followers& one, const Followers& other) {
  const auto same_job = [](const auto& a, const auto& b) { return a.first == b.first; };
  return one.followers_ == other.followers_ && one.waits_ == other.waits_ &&
         one.dependencies_ == other.dependencies_ &&
         std::equal(one.doomed_.begin(), one.doomed_.end(), other.doomed_.begin(), other.doomed_.end(),
                    same_job);
}

}  // namespace tutti::cluster
