#include "control/wire/use.hpp"

namespace tutti::wire {

Use use_of(const cluster::State& state, const cluster::Node& node) {
  Use use;
  for (const auto id : state.index.jobs_on(node.name)) {
    const auto& job = state.jobs.at(id);
    const cluster::RankRun here = state.index.ranks_on(node.name, id);
    use.cpus += job.spec.shape.cpus * here.count;
    use.memory += job.spec.shape.memory * here.count;
    for (std::int32_t rank = here.first; rank < here.first + here.count; ++rank) {
      for (const auto& device : job.places[static_cast<std::size_t>(rank)].devices)
        use.shares[device.device] += device.share;
    }
    use.jobs.push_back(id.text());
  }
  return use;
}

}  // namespace tutti::wire
