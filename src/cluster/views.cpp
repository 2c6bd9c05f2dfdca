#include <algorithm>

#include "cluster/machine.hpp"

namespace tutti::cluster {
namespace {

sched::NodeView empty_view(const Node& node) {
  sched::NodeView view{node.name, node.location, {}, node.inventory.cpus, node.inventory.memory};
  for (const Device& device : node.inventory.devices)
    view.devices.push_back({device.model, device.memory, sched::whole_share});
  return view;
}

void take(sched::NodeView& view, const Job& job, const RankPlace& place) {
  view.cpus_free -= job.spec.shape.cpus;
  view.memory_free -= job.spec.shape.memory;
  for (const auto& device : place.devices) {
    // A node may have come back with fewer devices than the gang was placed on.
    if (static_cast<std::size_t>(device.device) >= view.devices.size()) continue;
    view.devices[static_cast<std::size_t>(device.device)].share_free -= device.share;
  }
}

}  // namespace

std::vector<sched::NodeView> full_room(const State& state) {
  std::vector<sched::NodeView> room;
  for (const auto& [name, node] : state.nodes) room.push_back(empty_view(node));
  return room;
}

std::vector<sched::NodeView> free_room(const State& state) {
  std::map<NodeName, sched::NodeView> by_name;
  for (const auto& [name, node] : state.nodes) {
    if (takes_work(node)) by_name.emplace(name, empty_view(node));
  }
  for (const JobId id : state.holding) {
    const Job& job = state.jobs.at(id);
    for (const RankPlace& place : job.places) {
      if (const auto view = by_name.find(place.node); view != by_name.end()) take(view->second, job, place);
    }
  }
  std::vector<sched::NodeView> room;
  room.reserve(by_name.size());
  for (auto& [name, view] : by_name) room.push_back(std::move(view));
  return room;
}

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

sched::Snapshot snapshot(const State& state) {
  sched::Snapshot snapshot;
  snapshot.revision = state.revision;
  snapshot.nodes = free_room(state);
  snapshot.fabric = state.fabric;
  ArrayRoom array_room(state);
  for (const JobId id : state.active) {
    const Job& job = state.jobs.at(id);
    if (job.placed()) continue;
    if (std::string why = waits_for(state, job); !why.empty()) {
      snapshot.held[id] = std::move(why);
    } else if (!array_room.take(job)) {
      snapshot.held[id] = "waits for other elements of its array: at most " +
                          std::to_string(job.spec.array->limit) + " run at once";
    } else {
      snapshot.queued.push_back({job.id, job.attempt, job.spec.priority, job.submitted_at, job.spec.shape});
    }
  }
  return snapshot;
}

}  // namespace tutti::cluster
