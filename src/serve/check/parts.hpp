// The parts of check_gpu().
#pragma once

#include "serve/check/check.hpp"
#include "serve/cuda/model.hpp"

namespace tutti::serve {

// Relative to the length of a row.
inline constexpr double f32_error_max = 1e-4;
inline constexpr double bf16_error_max = 0.05;

// Of the model on the CPU.
inline constexpr std::uint64_t cpu_cache_bytes = 16 << 20;

Result<> check_logits(const Print& print);
Result<> check_answers(const Print& print);
Result<> check_choices(const Print& print);
Result<> check_known(const Print& print);

}  // namespace tutti::serve
