#include "control/cluster/followers.hpp"

#include "control/cluster/model.hpp"

namespace tutti::cluster {

void Followers::changed(const Change& change) {
  const Job& job = change.job;
  if (job.spec.after.empty()) return;
  const bool comes = change.before == Phase::unknown && change.after != Phase::ended;
  const bool goes = change.before != Phase::unknown && change.after == Phase::ended;
  if (!comes && !goes) return;
  for (const Dependency& dependency : job.spec.after) {
    if (!dependency.success) continue;
    if (comes) {
      followers_[dependency.job].insert(job.id);
    } else if (const auto known = followers_.find(dependency.job); known != followers_.end()) {
      known->second.erase(job.id);
      if (known->second.empty()) followers_.erase(known);
    }
  }
}

const std::set<sched::JobId>& Followers::of(sched::JobId job) const {
  static const std::set<sched::JobId> none;
  const auto known = followers_.find(job);
  return known == followers_.end() ? none : known->second;
}

}  // namespace tutti::cluster
