#include "control/cluster/residents.hpp"

#include "control/cluster/model.hpp"

namespace tutti::cluster {

void Residents::changed(const Change& change) {
  const Job& job = change.job;
  if (change.enters(Phase::running)) {
    for (const NodeName& node : nodes_of(job)) on_node_[node].insert(job.id);
    const Port port{change.state.nodes.at(job.places.front().node).address, job.master_port};
    ports_[job.id] = port;
    ++sharers_[port];
  }
  if (change.leaves(Phase::running)) {
    for (const NodeName& node : nodes_of(job)) {
      const auto here = on_node_.find(node);
      here->second.erase(job.id);
      if (here->second.empty()) on_node_.erase(here);
    }
    const auto port = ports_.find(job.id);
    if (const auto sharers = sharers_.find(port->second); --sharers->second == 0) sharers_.erase(sharers);
    ports_.erase(port);
  }
}

const std::set<sched::JobId>& Residents::jobs_on(const std::string& node) const {
  static const std::set<sched::JobId> none;
  const auto here = on_node_.find(node);
  return here == on_node_.end() ? none : here->second;
}

bool Residents::port_taken(const std::string& address, std::int32_t port) const {
  return sharers_.contains({address, port});
}

}  // namespace tutti::cluster
