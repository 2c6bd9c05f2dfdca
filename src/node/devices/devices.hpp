// What discovery says about a node: the accelerators, and how it knows. Each way to find them is a module
// beside this one: `fake` for tests and demonstrations, `nvml` for NVIDIA's, `host` for the machine around
// them. Values: any thread.
#pragma once

#include <string>
#include <vector>

#include "control/cluster/model.hpp"

namespace tutti::devices {

struct Found {
  cluster::Inventory inventory;
  std::string source;                 // "nvml", "fake", "none"
  std::vector<std::string> warnings;  // what a person should look at, such as a device that does not answer
};

}  // namespace tutti::devices
