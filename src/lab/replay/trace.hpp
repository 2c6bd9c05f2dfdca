// What was asked of a cluster over time: the jobs of a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::replay {

struct TraceJob {
  std::string name;
  Duration submit{};  // after the trace's first job
  std::int32_t gpus = 1;
  Duration duration{};
  std::string gpu_type;  // "" any
  std::string user;
};

// Columns job_id, submit_s, gpus, duration_s and, where they are there, gpu_type, user and partition. In the
// order of submission; only those of one partition if it is named.
Result<std::vector<TraceJob>> read_trace(const std::string& file, const std::string& partition);

}  // namespace tutti::replay
