// The loops over a whole vocabulary, written so that a compiler makes vectors of them. Pure.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::serve {

// No logit is larger, so that nothing that is done with one overflows.
inline constexpr float logit_max = 1e30F;
// No model that computes right comes near to it: what is beyond was no number, or infinite.
inline constexpr float logit_sane = 1e20F;
// What weighs less than e^-64 of the largest weighs nothing.
inline constexpr float exponent_min = -64.0F;

// e^x of -64 <= x <= 0, 0 below; within 2 units of the last place. The same operations in the same order
// everywhere: no library has a say in it.
inline float exponential(float x) {
  constexpr float log2_of_e = 1.44269504F;
  constexpr float rounder = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  constexpr float ln2_high = 0.693359375F;
  constexpr float ln2_low = -2.12194440e-4F;
  const float clamped = x < exponent_min ? exponent_min : x;
  const float whole = (clamped * log2_of_e + rounder) - rounder;
  const float rest = (clamped - whole * ln2_high) - whole * ln2_low;
  float sum = 1.9875691500e-4F;
  sum = sum * rest + 1.3981999507e-3F;
  sum = sum * rest + 8.3334519073e-3F;
  sum = sum * rest + 4.1665795894e-2F;
  sum = sum * rest + 1.6666665459e-1F;
  sum = sum * rest + 5.0000001201e-1F;
  const float fraction = (sum * (rest * rest) + rest) + 1.0F;
  const auto power = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) + 127) << 23U;
  const float value = fraction * std::bit_cast<float>(power);
  return x < exponent_min ? 0.0F : value;
}

inline bool is_sane(float logit) { return logit > -logit_sane && logit < logit_sane; }

namespace kernels {

// The logits with what is no number taken for a number: step 1 of choose.hpp.
void copy_finite(std::span<const float> from, std::span<float> to);
float largest_of(std::span<const float> row);
void divide(std::span<float> row, float by);
// weights[i] = exponential(row[i] - largest)
void weigh(std::span<const float> row, float largest, std::span<float> weights);
// The sum of exponential(row[i] - largest), and of weights.
double sum_of_weights(std::span<const float> row, float largest);
double sum(std::span<const float> weights);
// The first place from `from` on with a number above the bar; the size of the row if there is none.
std::size_t next_above(std::span<const float> row, std::size_t from, float bar);

}  // namespace kernels
}  // namespace tutti::serve
