// Which kernels this CPU can run. Any thread.
#pragma once

#include <string_view>
#include <vector>

#include "serve/cpu/kernels.hpp"

namespace tutti::serve::cpu {

// The best ones.
const Kernels& kernels();
// All of them, the best first.
std::vector<const Kernels*> all_kernels();

}  // namespace tutti::serve::cpu
