// `tutti jobs archive`: finished jobs out of the cluster's store and into a file of one's own. Used by the
// main thread only.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cli/cluster.hpp"

namespace tutti::cli {

struct ArchiveOptions {
  std::string file;       // gets a line of JSON for each job, behind what it holds
  Duration older_than{};  // since their end
};

// How many there were. A job is removed only when its line is on the disk.
Result<std::size_t> archive_jobs(Cluster& cluster, const ArchiveOptions& options);

}  // namespace tutti::cli
