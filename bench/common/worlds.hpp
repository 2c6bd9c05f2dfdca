// The cluster on virtual time, measured: chaos, and the real controller with a fleet of simulated agents. One
// thread.
#pragma once

#include "base/result.hpp"
#include "common/report.hpp"

namespace tutti::bench {

// 10,000 worlds full of faults, and how many of them a second.
Result<> measure_worlds(Report& report, bool quick);
// 27,500 agents that beat every second, and 1,000 jobs that end in each.
Result<> measure_agents(Report& report, bool quick);

}  // namespace tutti::bench
