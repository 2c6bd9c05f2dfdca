// How much of a cluster can be filled before nothing fits any more: tasks of a list come in random order,
// each is placed once, and none leaves. Tells how well a policy avoids fragments. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/sched/sched.hpp"
#include "lab/replay/fleet.hpp"

namespace tutti::replay {

// Columns cpu_milli, memory_mib, num_gpu, gpu_milli and gpu_spec where it is there ("A100|V100"). CPUs are
// counted in thousandths here: read the nodes from a list that does the same.
Result<std::vector<sched::Shape>> read_tasks(const std::string& file);

struct Saturated {
  std::string policy;
  std::vector<std::uint64_t> seeds;
  std::vector<double> gpu_allocation_percent;  // of each seed

  double mean() const;
};

// The tasks are drawn from the list until they ask for so much of the devices of the fleet.
constexpr double saturate_arrivals = 1.3;

Saturated saturate(const Fleet& fleet, const std::vector<sched::Shape>& tasks, const sched::Policy& policy,
                   const std::vector<std::uint64_t>& seeds, const std::function<void(std::size_t)>& progress);

}  // namespace tutti::replay
