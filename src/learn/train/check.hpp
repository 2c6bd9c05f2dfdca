// Does the trainer's arithmetic agree with libtorch's on this machine? What `tutti-worker check-train` asks.
#pragma once

#include <functional>
#include <string>

#include "base/result.hpp"

namespace tutti::train {

// Compares every function of math.hpp with plain libtorch in f64, on the first GPU in f32 and bf16, or on the
// host where there is none; on a GPU also the gradients of small models with the host's. `print` gets a line
// for each with its largest error; the first that is off ends it.
Result<> check(const std::function<void(const std::string&)>& print);

}  // namespace tutti::train
