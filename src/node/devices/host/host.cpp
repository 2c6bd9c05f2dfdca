#include "node/devices/host/host.hpp"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>

#include "node/devices/host/library.hpp"

namespace tutti::devices {
namespace {

constexpr std::size_t domain_digits = 4;

// The functions of hwloc that are used here, out of a library that may not be there.
struct Hwloc {
  decltype(hwloc_topology_init)* topology_init = nullptr;
  decltype(hwloc_topology_set_all_types_filter)* set_all_types_filter = nullptr;
  decltype(hwloc_topology_set_flags)* set_flags = nullptr;
  decltype(hwloc_topology_load)* topology_load = nullptr;
  decltype(hwloc_topology_destroy)* topology_destroy = nullptr;
  decltype(hwloc_get_obj_by_depth)* object_by_depth = nullptr;
  decltype(hwloc_get_nbobjs_by_depth)* count_by_depth = nullptr;
  decltype(hwloc_bitmap_weight)* bitmap_weight = nullptr;

  bool load(const Library& library) {
    return library.found() && library.load(topology_init, "hwloc_topology_init") &&
           library.load(set_all_types_filter, "hwloc_topology_set_all_types_filter") &&
           library.load(set_flags, "hwloc_topology_set_flags") &&
           library.load(topology_load, "hwloc_topology_load") &&
           library.load(topology_destroy, "hwloc_topology_destroy") &&
           library.load(object_by_depth, "hwloc_get_obj_by_depth") &&
           library.load(count_by_depth, "hwloc_get_nbobjs_by_depth") &&
           library.load(bitmap_weight, "hwloc_bitmap_weight");
  }
};

std::optional<Host> read_topology(const Hwloc& hwloc, hwloc_topology_t topology) {
  // CPUs and NUMA nodes are always kept; caches, distances and PCI would only cost time.
  hwloc.set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  const unsigned long flags = HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING | HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM |
                              HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                              HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
  if (hwloc.set_flags(topology, flags) != 0 || hwloc.topology_load(topology) != 0) return std::nullopt;
  const hwloc_obj* machine = hwloc.object_by_depth(topology, 0, 0);
  if (machine == nullptr || machine->cpuset == nullptr || machine->total_memory == 0) return std::nullopt;
  return Host{.cpus = std::max(1, hwloc.bitmap_weight(machine->cpuset)),
              .memory = Bytes(static_cast<std::int64_t>(machine->total_memory)),
              .numa_nodes = std::max(
                  1, static_cast<std::int32_t>(hwloc.count_by_depth(topology, HWLOC_TYPE_DEPTH_NUMANODE))),
              .source = "hwloc"};
}

std::optional<Host> ask_hwloc(const std::string& name) {
  const Library library(name);
  Hwloc hwloc;
  hwloc_topology_t topology = nullptr;
  if (!hwloc.load(library) || hwloc.topology_init(&topology) != 0) return std::nullopt;
  auto host = read_topology(hwloc, topology);
  hwloc.topology_destroy(topology);
  return host;
}

Host ask_system() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Fails on machines with more CPUs than the set has room for.
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const long cpus = known ? CPU_COUNT(&allowed) : sysconf(_SC_NPROCESSORS_ONLN);
  return {.cpus = std::max(1, static_cast<std::int32_t>(cpus)),
          .memory = Bytes(std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE)),
          .numa_nodes = 1,
          .source = "system"};
}

// The system has four digits for the domain and small letters; NVIDIA's library has eight digits and
// capitals.
std::string system_bus_id(std::string_view bus_id) {
  const std::size_t colon = bus_id.find(':');
  if (colon != std::string_view::npos && colon > domain_digits) bus_id.remove_prefix(colon - domain_digits);
  std::string id(bus_id);
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return id;
}

}  // namespace

Host find_host(const std::string& library) {
  Host system = ask_system();
  auto host = ask_hwloc(library);
  if (!host) return system;
  // Bound to some CPUs, hwloc counts only the memory beside them; a rank may use all of it.
  host->memory = system.memory;
  return *std::move(host);
}

std::int32_t numa_of_pci(std::string_view bus_id, const std::string& root) {
  if (bus_id.empty() || bus_id.find('/') != std::string_view::npos) return -1;
  std::int32_t node = -1;
  std::ifstream file(root + "/" + system_bus_id(bus_id) + "/numa_node");
  return file >> node ? node : -1;
}

}  // namespace tutti::devices
