#include "cluster/model.hpp"

namespace tutti::cluster {

void derive(State& state, Instant now) {
  state.active.clear();
  state.holding.clear();
  for (const auto& [id, job] : state.jobs) {
    if (!job.finished()) state.active.insert(id);
    if (job.placed()) state.holding.insert(id);
    state.next_job = std::max(state.next_job, id.number() + 1);
  }
  for (auto& [name, node] : state.nodes) node.heard_at = now;
  state.queues.try_emplace("default", Queue{"default"});
}

NodeState node_state(const State& state, const Node& node) {
  if (node.lost) return NodeState::lost;
  if (!node.draining) return NodeState::ready;
  for (const JobId id : state.holding) {
    for (const RankPlace& place : state.jobs.at(id).places) {
      if (place.node == node.name) return NodeState::draining;
    }
  }
  return NodeState::drained;
}

std::string_view name_of(NodeState state) {
  switch (state) {
    case NodeState::ready:
      return "ready";
    case NodeState::draining:
      return "draining";
    case NodeState::drained:
      return "drained";
    case NodeState::lost:
      return "lost";
  }
  return "";
}

std::string_view name_of(JobState state) {
  switch (state) {
    case JobState::queued:
      return "queued";
    case JobState::starting:
      return "starting";
    case JobState::running:
      return "running";
    case JobState::restarting:
      return "restarting";
    case JobState::succeeded:
      return "succeeded";
    case JobState::failed:
      return "failed";
    case JobState::cancelled:
      return "cancelled";
  }
  return "";
}

std::int64_t gpu_share_total(const JobSpec& spec) {
  return std::int64_t{spec.shape.ranks} * spec.shape.gpu_share;
}

}  // namespace tutti::cluster
