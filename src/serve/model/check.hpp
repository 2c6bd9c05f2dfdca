// What every model refuses before it computes: steps that reach beyond what was reserved. Pure.
#pragma once

#include <span>

#include "base/result.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

Result<> check_step(std::span<const Chunk> chunks, const Limits& limits);

}  // namespace tutti::serve
