// `tutti controller ca`: the authority of a cluster, and the steps to another one. Used by the main thread
// only.
#pragma once

#include <string>

#include "base/result.hpp"

namespace tutti::cli {

// `step` is "" to show it, or "rotate".
Result<int> run_controller_ca(const std::string& step, bool finish);

}  // namespace tutti::cli
