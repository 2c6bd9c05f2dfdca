#include "control/wire/use.hpp"

namespace tutti::wire {

std::map<std::string, Use> uses_by_node(const cluster::State& state) {
  std::map<std::string, Use> uses;
  for (const auto id : state.holding) {
    const auto& job = state.jobs.at(id);
    for (const auto& place : job.places) {
      Use& use = uses[place.node];
      use.cpus += job.spec.shape.cpus;
      use.memory += job.spec.shape.memory;
      for (const auto& device : place.devices) use.shares[device.device] += device.share;
      if (use.jobs.empty() || use.jobs.back() != id.text()) use.jobs.push_back(id.text());
    }
  }
  return uses;
}

}  // namespace tutti::wire
