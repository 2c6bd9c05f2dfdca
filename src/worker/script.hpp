// `tutti-worker script MODEL OPTIONS`: runs a TorchScript model for a `tutti engine` that holds the other
// ends of its sockets.
#pragma once

#include <span>
#include <string>

#include "base/result.hpp"

namespace tutti::worker {

// MODEL and its options as `tutti` writes them. The exit code.
Result<int> host_script(std::span<const std::string> words);

}  // namespace tutti::worker
