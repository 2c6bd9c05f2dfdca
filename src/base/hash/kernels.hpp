// The inner loop of XXH3 over long inputs, one for each instruction set; kernels.cpp chooses between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::hashing {

inline constexpr std::size_t stripe_bytes = 64;
inline constexpr std::size_t block_stripes = 16;  // after each the sums are scrambled
inline constexpr std::size_t secret_bytes = 192;

struct Sums {
  alignas(stripe_bytes) std::array<std::uint64_t, 8> lanes;
  std::size_t stripes_in_block = 0;  // taken since the last scramble
};

// Takes whole stripes of the input.
using TakeStripes = void (*)(Sums& sums, const std::byte* input, std::size_t stripes,
                             const std::byte* secret);

TakeStripes take_stripes_plain();
TakeStripes take_stripes_avx2();
TakeStripes take_stripes_avx512();

// The quickest that this CPU has.
void take_stripes(Sums& sums, const std::byte* input, std::size_t stripes, const std::byte* secret);
// The last stripe of all, which may overlap the one before it, against its own part of the secret.
void take_last_stripe(Sums& sums, const std::byte* input, const std::byte* secret);

}  // namespace tutti::hashing
