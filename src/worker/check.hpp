// Does libtorch work on this machine? What `tutti-worker check` asks before any training is tried.
#pragma once

#include <string>

#include "base/result.hpp"

namespace tutti::worker {

// The library's version and the devices it sees: "torch 1.13.1, cpu" or "torch 2.11.0, cuda: NVIDIA H200".
std::string describe();

// Multiplies two matrices on the CPU, and on each GPU if there is one, and compares with the exact result.
Result<std::string> check();

}  // namespace tutti::worker
