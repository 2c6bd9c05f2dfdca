// `tutti-worker model MODEL OPTIONS`: computes for a `tutti engine` that holds the other end of a socket.
#pragma once

#include <span>
#include <string>

#include "base/result.hpp"

namespace tutti::worker {

// MODEL and its options as `tutti` writes them. The exit code.
Result<int> host_model(std::span<const std::string> words);

}  // namespace tutti::worker
