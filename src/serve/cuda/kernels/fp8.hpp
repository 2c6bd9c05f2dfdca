// Numbers of eight bits as GPUs have them, E4M3: a sign, four bits of exponent, three of mantissa; the
// largest is 448, and there is no infinity. A row of a matrix has one scale for all of its numbers. Pure, any
// thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace tutti::serve::cuda {

constexpr float fp8_largest = 448;

// The nearest number, of two equally near ones the even one; what is too large is the largest.
inline std::uint8_t fp8_from_float(float number) {
  constexpr std::uint32_t infinity = 0x7f800000U;
  constexpr std::uint32_t first_normal = 0x3c800000U;  // 2^-6
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t sign = bits >> 24U & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t code = 0;
  if (magnitude > infinity) {
    code = 0x7fU;
  } else if (magnitude >= std::bit_cast<std::uint32_t>(fp8_largest)) {
    code = 0x7eU;
  } else if (magnitude >= first_normal) {
    code = (magnitude - (120U << 23U) + 0x7ffffU + (magnitude >> 20U & 1U)) >> 20U;
  } else {
    // The float's own addition rounds to multiples of 2^-9, the subnormal steps: the last bits of 2^14.
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) -
           std::bit_cast<std::uint32_t>(0x1p14F);
  }
  return static_cast<std::uint8_t>(sign | code);
}

inline float fp8_to_float(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24U;
  const std::uint32_t magnitude = code & 0x7fU;
  if (magnitude == 0x7fU) return std::bit_cast<float>(sign | 0x7fc00000U);
  const std::uint32_t bits = magnitude < 8
                                 ? std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9F)
                                 : (magnitude << 20U) + (120U << 23U);
  return std::bit_cast<float>(sign | bits);
}

// Makes codes of a row: the largest number of it becomes the largest code. Returns the scale, which gives the
// numbers back. What is infinite becomes the largest, and nothing finite becomes no number.
inline float fp8_from_row(std::span<const float> row, std::span<std::uint8_t> codes) {
  float largest = 0;
  for (const float number : row) {
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  }
  if (largest == 0) {
    for (std::size_t at = 0; at < row.size(); ++at)
      codes[at] = std::isfinite(row[at]) ? std::uint8_t{0} : fp8_from_float(row[at]);
    return 0;
  }
  const float scale = std::max(largest / fp8_largest, std::numeric_limits<float>::min());
  for (std::size_t at = 0; at < row.size(); ++at) codes[at] = fp8_from_float(row[at] / scale);
  return scale;
}

}  // namespace tutti::serve::cuda
