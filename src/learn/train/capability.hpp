// Which GPUs can train: those that the kernels are compiled for (cmake/cuda.cmake). Stateless.
#pragma once

#include <string_view>

#include "base/result.hpp"

namespace tutti::train {

// By its compute capability, which NVIDIA counts up: 7.0 is Volta, 8.0 Ampere, 9.0 Hopper. One that is too
// old is `invalid`: another attempt would meet it again.
Result<> check_capability(std::string_view gpu, int major, int minor);

// The same of a GPU of this machine, by its number; -1 is the host, which can.
Result<> check_device(int device);

}  // namespace tutti::train
