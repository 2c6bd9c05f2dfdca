// What the cluster knows about the network between its nodes, and which links stand out. Pure functions: any
// thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/sched/fabric.hpp"

namespace tutti::cluster {

using sched::Fabric;
using sched::Link;
using sched::NodeName;

// Each pair of so many nodes in both directions: what one measurement can give.
constexpr std::size_t fabric_nodes_max = 128;
constexpr std::size_t fabric_links_max = fabric_nodes_max * (fabric_nodes_max - 1);
constexpr Duration link_latency_max = 60s;
constexpr Bytes link_bandwidth_max(1'000'000'000'000'000);  // a second

// A link is compared with the median of its neighbours: the links between other pairs that touch either of
// its ends.
constexpr double slow_bandwidth_factor = 0.7;
constexpr double slow_latency_factor = 3;
constexpr std::size_t slow_neighbours_min = 2;

struct SlowLink {
  double bandwidth_ratio = 1;  // its bandwidth over the median of its neighbours'
  double latency_ratio = 1;

  // "41% of its neighbours", "latency 4.2 times its neighbours'", or both.
  std::string text() const;
};

// Those that are slow, by from and to.
std::map<std::pair<NodeName, NodeName>, SlowLink> slow_links(const Fabric& fabric);

// A fabric of the links, if each is between two different nodes of these, measured once and in range.
Result<Fabric> make_fabric(const std::vector<Link>& links, const std::set<NodeName>& nodes);

// Without the links to and from all other nodes.
Fabric only_between(const Fabric& fabric, const std::set<NodeName>& nodes);

}  // namespace tutti::cluster
