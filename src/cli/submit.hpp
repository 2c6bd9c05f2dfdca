// From a draft to a job of the cluster. Main thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/cluster.hpp"
#include "cli/jobfile/job_flags.hpp"

namespace tutti::cli {

// Submits the jobs, once however often they have to be sent, and returns the id of the first one. It is
// waited for a controller that goes away before it has answered.
Result<std::string> submit(Cluster& cluster, std::vector<cluster::JobSpec> specs);

// Submits the draft and returns the id of the job, or of the first element of an array.
Result<std::string> submit(Cluster& cluster, jobfile::Draft& draft);

// To stdout, for whoever follows it; one that cannot be written is in the error.
Result<int> print_id(const std::string& job);

}  // namespace tutti::cli
