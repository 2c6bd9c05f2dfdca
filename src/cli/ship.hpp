// Ships a folder to the controller: only the contents it lacks travel.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/cluster.hpp"

namespace tutti::cli {

// The hash of the stored manifest.
Result<std::string> ship(Cluster& cluster, const std::string& folder);

}  // namespace tutti::cli
