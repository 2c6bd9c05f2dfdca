// From a draft to a job of the cluster. Main thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/cluster.hpp"
#include "cli/jobfile/job_flags.hpp"

namespace tutti::cli {

// Submits the draft and returns the id of the job, or of the first element of an array.
Result<std::string> submit(Cluster& cluster, jobfile::Draft& draft);

}  // namespace tutti::cli
