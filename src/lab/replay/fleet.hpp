// The machines of a simulation: from a few lines of YAML, a list of nodes, or a size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/model.hpp"

namespace tutti::replay {

struct FleetNode {
  std::string name;
  std::string location;
  cluster::Inventory inventory;
};
using Fleet = std::vector<FleetNode>;

constexpr std::int64_t fleet_nodes_max = 100'000;

// A file that ends in .csv or .csv.gz is a list of nodes: name (or sn), gpus (or gpu), model and, where they
// are there, location, cpus or cpu_milli, memory_mib. Anything else is YAML:
//
//   nodes: 8             or several such groups as a list under `groups:`
//   gpus: 8
//   model: V100
//   cpus: 96             of each node
//   memory: 512GiB
//   nodes_per_rack: 8    these three make the tree
//   racks_per_pod: 16
//   pods_per_site: 8
Result<Fleet> read_fleet(const std::string& file);

struct FleetGroup {
  std::int64_t nodes = 1;
  std::int64_t gpus = 8;
  std::string model = "GPU";
  std::int64_t cpus = 96;
  Bytes memory = gib(512);
  std::int64_t nodes_per_rack = 8;
  std::int64_t racks_per_pod = 16;
  std::int64_t pods_per_site = 8;
};
// Appends the group; names go on where the fleet ends.
void add_group(Fleet& fleet, const FleetGroup& group);

}  // namespace tutti::replay
