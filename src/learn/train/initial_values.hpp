#pragma once

#include "learn/train/parameters.hpp"

namespace tutti::train {

// Values of a new model: the same for every mesh, as each element depends on the seed, the tensor's name and
// its place alone.
Parameters::Source initial_values(std::uint64_t seed);

}  // namespace tutti::train
