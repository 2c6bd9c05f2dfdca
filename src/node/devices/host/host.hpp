// The machine around the devices: CPUs, memory, NUMA nodes. hwloc tells if the server has it, the system
// otherwise. Asked once, when an agent starts. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace tutti::devices {

struct Host {
  std::int32_t cpus = 1;  // that this process may use: its affinity counts
  Bytes memory;
  std::int32_t numa_nodes = 1;
  std::string source;  // "hwloc" or "system"
};

Host find_host(const std::string& library = "libhwloc.so.15");

// The NUMA node a PCI device is attached to, -1 if the system does not say. Takes the bus id in the forms
// that drivers use, such as "0000:3b:00.0" and "00000000:3B:00.0".
std::int32_t numa_of_pci(std::string_view bus_id, const std::string& root = "/sys/bus/pci/devices");

}  // namespace tutti::devices
