#include <algorithm>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {

std::string waits_for(const State& state, const Job& job) {
  for (const Dependency& dependency : job.spec.after) {
    const auto before = state.jobs.find(dependency.job);
    if (before == state.jobs.end() || before->second.finished()) continue;
    return "waits for job " + dependency.job.text() + " to " + (dependency.success ? "succeed" : "end");
  }
  return "";
}

ArrayRoom::ArrayRoom(const State& state) {
  for (const JobId id : state.holding) {
    if (const auto& part = state.jobs.at(id).spec.array) ++running_[part->first];
  }
}

bool ArrayRoom::take(const Job& job) {
  const auto& part = job.spec.array;
  if (!part || part->limit == 0) return true;
  std::int32_t& running = running_[part->first];
  if (running >= part->limit) return false;
  ++running;
  return true;
}

sched::Snapshot snapshot(State& state, Instant now) { return state.index.snapshot(state, now); }

}  // namespace tutti::cluster
