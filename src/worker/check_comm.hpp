// Do collectives work on this machine's tensors? What `tutti-worker check-comm` asks, as one rank of a job.
#pragma once

#include <string>

#include "base/result.hpp"

namespace tutti::worker {

// Runs every collective on tensors of a GPU, or of the CPU where there is none, and compares with what
// libtorch computes; then takes the time of all-reduces. Rank 0 gets the report, the others an empty text.
Result<std::string> check_comm();

}  // namespace tutti::worker
