// What placed gangs use of each node. For this module's own files only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "control/cluster/model.hpp"

namespace tutti::wire {

struct Use {
  std::map<std::int32_t, std::int32_t> shares;
  std::int32_t cpus = 0;
  Bytes memory;
  std::vector<std::string> jobs;
};

std::map<std::string, Use> uses_by_node(const cluster::State& state);

}  // namespace tutti::wire
