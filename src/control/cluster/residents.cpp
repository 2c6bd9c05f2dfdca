#include "control/cluster/residents.hpp"

#include "control/cluster/model.hpp"

namespace tutti::cluster {
namespace {

std::map<NodeName, RankRun> runs_of(const Job& job) {
  std::map<NodeName, RankRun> runs;
  RankRun* run = nullptr;
  for (std::size_t rank = 0; rank < job.places.size(); ++rank) {
    if (rank == 0 || job.places[rank].node != job.places[rank - 1].node) {
      run = &runs[job.places[rank].node];
      run->first = static_cast<std::int32_t>(rank);
    }
    ++run->count;
  }
  return runs;
}

}  // namespace

void Residents::changed(const Change& change) {
  const Job& job = change.job;
  if (change.enters(Phase::running)) {
    for (const auto& [node, run] : runs_of(job)) {
      Guests& guests = on_node_[node];
      guests.jobs.insert(job.id);
      guests.ranks[job.id] = run;
    }
    const Port port{change.state.nodes.at(job.places.front().node).address, job.master_port};
    ports_[job.id] = port;
    ++sharers_[port];
  }
  if (change.leaves(Phase::running)) {
    for (const NodeName& node : nodes_of(job)) {
      const auto here = on_node_.find(node);
      here->second.jobs.erase(job.id);
      here->second.ranks.erase(job.id);
      if (here->second.jobs.empty()) on_node_.erase(here);
    }
    const auto port = ports_.find(job.id);
    if (const auto sharers = sharers_.find(port->second); --sharers->second == 0) sharers_.erase(sharers);
    ports_.erase(port);
  }
}

const std::set<sched::JobId>& Residents::jobs_on(const std::string& node) const {
  static const std::set<sched::JobId> none;
  const auto here = on_node_.find(node);
  return here == on_node_.end() ? none : here->second.jobs;
}

RankRun Residents::ranks_on(const std::string& node, sched::JobId job) const {
  const auto here = on_node_.find(node);
  if (here == on_node_.end()) return {};
  const auto run = here->second.ranks.find(job);
  return run == here->second.ranks.end() ? RankRun() : run->second;
}

bool Residents::port_taken(const std::string& address, std::int32_t port) const {
  return sharers_.contains({address, port});
}

}  // namespace tutti::cluster
