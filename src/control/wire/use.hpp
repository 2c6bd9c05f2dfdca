// What placed gangs use of a node, found without looking at the others. For this module's own files only.
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

Use use_of(const cluster::State& state, const cluster::Node& node);

}  // namespace tutti::wire
