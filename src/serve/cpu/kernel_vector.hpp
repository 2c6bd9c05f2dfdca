// Registers of floats, as the compiler's own vectors. Included by the kernels_*.cpp only, each compiled for
// its own instruction set, with `lanes` set: everything here is local to the file that includes it, and it
// calls no inline function of the standard library, because the linker would be free to give that function's
// AVX-512 body to the rest of the program.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "serve/cpu/kernels.hpp"

// g++ warns of every array in a template whose size is an int.
#pragma GCC diagnostic ignored "-Wsign-conversion"

namespace {

using namespace tutti::serve::cpu;  // NOLINT: nothing but kernels is in such a file

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
constexpr int bytes_of_vector = lanes * 4;
constexpr int slices = static_cast<int>(panel_rows) / lanes;  // registers of one column of a panel

typedef float Vector __attribute__((vector_size(bytes_of_vector)));
typedef std::int32_t Whole __attribute__((vector_size(bytes_of_vector)));
typedef std::uint32_t Bits __attribute__((vector_size(bytes_of_vector)));
typedef std::uint16_t Halves __attribute__((vector_size(bytes_of_vector / 2)));

inline Vector load(const float* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}
inline void store(float* to, Vector vector) { __builtin_memcpy(to, &vector, sizeof vector); }
inline Vector all(float value) { return value - Vector{}; }
inline Whole same_bits(Vector vector) { return reinterpret_cast<Whole>(vector); }
inline Vector floats_of(Whole bits) { return reinterpret_cast<Vector>(bits); }
// Lane by lane: a where the mask is set, else b.
inline Vector select(Whole mask, Vector a, Vector b) {
  return floats_of((mask & same_bits(a)) | (~mask & same_bits(b)));
}
inline Vector larger(Vector a, Vector b) { return select(a > b, a, b); }
inline Vector smaller(Vector a, Vector b) { return select(a < b, a, b); }
inline Vector load_brain(const std::uint16_t* from) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return reinterpret_cast<Vector>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#elif defined(__AVX2__)
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<Vector>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
#else
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return reinterpret_cast<Vector>(__builtin_convertvector(halves, Bits) << 16);
#endif
}

// Sixteen sums side by side, however many registers they take: all instruction sets add in one order.
struct Sixteen {
  Vector part[slices] = {};
};
inline float sum_of(const Sixteen& sums) {
  float each[panel_rows];
  for (int slice = 0; slice < slices; ++slice) store(each + slice * lanes, sums.part[slice]);
  for (int half = static_cast<int>(panel_rows) / 2; half > 0; half /= 2)
    for (int at = 0; at < half; ++at) each[at] += each[at + half];
  return each[0];
}

// e to the power of each lane, to about the last bit; 0 below what a float can hold.
inline Vector exponential(Vector power) {
  constexpr float lowest = -87.3F;
  constexpr float highest = 88.3F;
  const Whole is_nothing = power < all(lowest);
  // In this order what is no number stays none: scores that have overflown are not taken for equal ones.
  Vector x = smaller(all(highest), larger(all(lowest), power));
  // Added to a number of this size, a float has no room for a fraction: what is left of it is rounded.
  constexpr float rounder = 12582912.0F;
  const Vector rounded = x * 1.44269504F + rounder;
  const Vector whole = rounded - rounder;
  x = x - whole * 0.693359375F;
  x = x + whole * 2.12194440e-4F;
  Vector sum = all(1.9875691500e-4F);
  sum = sum * x + 1.3981999507e-3F;
  sum = sum * x + 8.3334519073e-3F;
  sum = sum * x + 4.1665795894e-2F;
  sum = sum * x + 1.6666665459e-1F;
  sum = sum * x + 5.0000001201e-1F;
  sum = sum * (x * x) + x + 1.0F;
  const Vector result = floats_of(same_bits(sum) + (same_bits(rounded) << 23));
  return floats_of(~is_nothing & same_bits(result));
}

}  // namespace
