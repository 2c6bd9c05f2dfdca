// The loop over stripes, in vectors as wide as the instruction set that the including file is compiled for.
// Included by the kernels_*.cpp only: everything here is local to the file that includes it, and it calls no
// inline function of the standard library, because the linker would be free to give that function's AVX-512
// body to the rest of the program.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/hash/kernels.hpp"

namespace {

using tutti::hashing::Sums;

constexpr std::uint64_t scramble_prime = 0x9E3779B1U;
constexpr std::size_t secret_step_bytes = 8;  // each stripe of a block meets the secret this much later
constexpr std::size_t prefetch_bytes = 512;   // how far ahead of the loop the input is asked for

// multiply_low: the low 32 bits of each lane of both, which is one instruction. swap: neighbouring lanes
// change places.
#if defined(__AVX512F__)
using Vector [[gnu::vector_size(64)]] = std::uint64_t;
inline Vector multiply_low(Vector a, Vector b) {
  // The form without a mask makes g++ 12 warn of a value that is never set.
  constexpr __mmask8 all = 0xff;
  return reinterpret_cast<Vector>(
      _mm512_maskz_mul_epu32(all, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline Vector swap(Vector v) { return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6); }
#elif defined(__AVX2__)
using Vector [[gnu::vector_size(32)]] = std::uint64_t;
inline Vector multiply_low(Vector a, Vector b) {
  return reinterpret_cast<Vector>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Vector swap(Vector v) { return __builtin_shufflevector(v, v, 1, 0, 3, 2); }
#else
using Vector [[gnu::vector_size(16)]] = std::uint64_t;
inline Vector multiply_low(Vector a, Vector b) {
#if defined(__SSE2__)
  return reinterpret_cast<Vector>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffffU) * (b & 0xffffffffU);
#endif
}
inline Vector swap(Vector v) { return __builtin_shufflevector(v, v, 1, 0); }
#endif

inline Vector load(const std::byte* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

constexpr std::size_t vectors = sizeof(Sums::lanes) / sizeof(Vector);

inline void take_stripe(Vector* sums, const std::byte* input, const std::byte* secret) {
  for (std::size_t i = 0; i < vectors; ++i) {
    const Vector data = load(input + i * sizeof(Vector));
    const Vector keyed = data ^ load(secret + i * sizeof(Vector));
    sums[i] += swap(data) + multiply_low(keyed, keyed >> 32);
  }
}

inline void scramble(Vector* sums, const std::byte* secret) {
  const Vector prime = Vector{} + scramble_prime;
  for (std::size_t i = 0; i < vectors; ++i) {
    const Vector keyed = sums[i] ^ sums[i] >> 47 ^ load(secret + i * sizeof(Vector));
    sums[i] = multiply_low(keyed, prime) + (multiply_low(keyed >> 32, prime) << 32);
  }
}

void take_stripes_here(Sums& target, const std::byte* input, std::size_t stripes, const std::byte* secret) {
  using tutti::hashing::block_stripes;
  using tutti::hashing::secret_bytes;
  using tutti::hashing::stripe_bytes;
  auto* const lanes = reinterpret_cast<std::byte*>(&target.lanes);
  Vector sums[vectors];
  for (std::size_t i = 0; i < vectors; ++i) sums[i] = load(lanes + i * sizeof(Vector));
  std::size_t in_block = target.stripes_in_block;
  while (stripes > 0) {
    const std::size_t left_in_block = block_stripes - in_block;
    const std::size_t now = stripes < left_in_block ? stripes : left_in_block;
#pragma GCC unroll 8
    for (std::size_t stripe = 0; stripe < now; ++stripe) {
      __builtin_prefetch(input + prefetch_bytes);
      take_stripe(sums, input, secret + (in_block + stripe) * secret_step_bytes);
      input += stripe_bytes;
    }
    stripes -= now;
    in_block += now;
    if (in_block == block_stripes) {
      scramble(sums, secret + secret_bytes - stripe_bytes);
      in_block = 0;
    }
  }
  target.stripes_in_block = in_block;
  for (std::size_t i = 0; i < vectors; ++i)
    __builtin_memcpy(lanes + i * sizeof(Vector), &sums[i], sizeof(Vector));
}

}  // namespace
