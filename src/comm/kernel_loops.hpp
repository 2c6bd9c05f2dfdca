// The loops of the kernels, as templates. Included by the kernels_*.cpp only, each compiled for its own
// instruction set: everything here is local to the file that includes it, and it calls no inline function of
// the standard library, because the linker would be free to give that function's AVX-512 body to the rest of
// the program.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "comm/kernels.hpp"

namespace {

using tutti::comm::DataType;
using tutti::comm::Kernels;
using tutti::comm::ReduceJob;
using tutti::comm::Reduction;

// Elements that are worked on at a time: sums stay in the first-level cache while the sources stream by.
constexpr std::size_t tile_count = 1024;

struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Half> {
  using type = float;
};
template <>
struct Accumulator<Brain> {
  using type = float;
};

inline float float_of(std::uint32_t bits) {
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float widen_one(Brain value) { return float_of(static_cast<std::uint32_t>(value.bits) << 16); }

// To the nearest, ties to even; a NaN stays one.
inline Brain narrow_one(float value, Brain) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40U;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded)};
}

inline float widen_one(Half value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return float_of(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  if (magnitude >= 0x400U) return float_of(sign | ((magnitude << 13) + 0x38000000U));
  const float small = static_cast<float>(magnitude) * 0x1p-24F;
  return float_of(sign | bits_of(small));
}

inline Half narrow_one(float value, Half) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  } else if (magnitude >= 0x477ff000U) {
    half = 0x7c00U;  // 65520 and above round to infinity
  } else if (magnitude >= 0x38800000U) {
    half = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  } else {
    // Adding 0.5 leaves the subnormal half in the low bits of the sum, rounded as the hardware rounds.
    half = bits_of(float_of(magnitude) + 0.5F) - 0x3f000000U;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

template <class T>
inline void widen(const T* source, float* target, std::size_t count) {
  std::size_t i = 0;
#if defined(__F16C__)
  if constexpr (sizeof(T) == 2 && __is_same(T, Half)) {
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(target + i,
                       _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i))));
    }
  }
#endif
  for (; i < count; ++i) target[i] = widen_one(source[i]);
}

template <class T>
inline void narrow(const float* source, T* target, std::size_t count) {
  std::size_t i = 0;
#if defined(__F16C__)
  if constexpr (sizeof(T) == 2 && __is_same(T, Half)) {
    for (; i + 8 <= count; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT));
    }
  }
#endif
  for (; i < count; ++i) target[i] = narrow_one(source[i], T{});
}

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Multiply {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a * b);
  }
};
struct Smaller {
  template <class T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Larger {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};

// Signed overflow wraps, as it does on the peers.
template <>
inline std::int32_t Add::apply(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
template <>
inline std::int64_t Add::apply(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
template <>
inline std::int32_t Multiply::apply(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
}
template <>
inline std::int64_t Multiply::apply(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

#if defined(__AVX512F__)
constexpr std::size_t stream_bytes = 64;
inline void stream_one(std::byte* target, const std::byte* source) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(target), _mm512_loadu_si512(source));
}
#elif defined(__AVX2__)
constexpr std::size_t stream_bytes = 32;
inline void stream_one(std::byte* target, const std::byte* source) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(target),
                      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
}
#elif defined(__x86_64__)
constexpr std::size_t stream_bytes = 16;
inline void stream_one(std::byte* target, const std::byte* source) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(target),
                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
}
#else
constexpr std::size_t stream_bytes = 16;
inline void stream_one(std::byte* target, const std::byte* source) {
  __builtin_memcpy(target, source, stream_bytes);
}
#endif

inline void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Without the fence that makes the bytes visible in order.
inline void stream_without_fence(std::byte* target, const std::byte* source, std::size_t bytes) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(target) % stream_bytes;
  std::size_t head = past == 0 ? 0 : stream_bytes - past;
  if (head > bytes) head = bytes;
  __builtin_memcpy(target, source, head);
  std::size_t i = head;
  for (; i + stream_bytes <= bytes; i += stream_bytes) stream_one(target + i, source + i);
  __builtin_memcpy(target + i, source + i, bytes - i);
}

inline void copy_stream(std::byte* target, const std::byte* source, std::size_t bytes) {
  stream_without_fence(target, source, bytes);
  stream_fence();
}

// Sums one tile of every source into `sums`.
template <class T, class Op>
inline void reduce_tile(typename Accumulator<T>::type* sums, const std::byte* const* sources,
                        std::size_t source_count, std::size_t first, std::size_t count) {
  using A = typename Accumulator<T>::type;
  const auto at = [&](std::size_t s) { return reinterpret_cast<const T*>(sources[s]) + first; };
  if constexpr (__is_same(T, A)) {
    if (source_count == 1) {
      __builtin_memcpy(sums, at(0), count * sizeof(T));
      return;
    }
    const T* a = at(0);
    const T* b = at(1);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) sums[i] = Op::apply(a[i], b[i]);
    for (std::size_t s = 2; s < source_count; ++s) {
      const T* more = at(s);
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) sums[i] = Op::apply(sums[i], more[i]);
    }
  } else {
    widen(at(0), sums, count);
    for (std::size_t s = 1; s < source_count; ++s) {
      alignas(64) A more[tile_count];
      widen(at(s), more, count);
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) sums[i] = Op::apply(sums[i], more[i]);
    }
  }
}

template <class T, class Op>
void reduce_kernel(const ReduceJob& job) {
  using A = typename Accumulator<T>::type;
  alignas(64) A sums[tile_count];
  alignas(64) T narrowed[tile_count];
  if constexpr (__is_same(T, A)) {
    if (job.source_count == 2 && job.target_count == 1 && job.divide_by == 0 && !job.stream) {
      // The common case needs no tile.
      T* out = reinterpret_cast<T*>(job.targets[0]);
      const T* a = reinterpret_cast<const T*>(job.sources[0]);
      const T* b = reinterpret_cast<const T*>(job.sources[1]);
#pragma GCC ivdep
      for (std::size_t i = 0; i < job.count; ++i) out[i] = Op::apply(a[i], b[i]);
      return;
    }
  }
  for (std::size_t first = 0; first < job.count; first += tile_count) {
    const std::size_t here = job.count - first < tile_count ? job.count - first : tile_count;
    reduce_tile<T, Op>(sums, job.sources, job.source_count, first, here);
    if (job.divide_by != 0) {
      const A divisor = static_cast<A>(job.divide_by);
      for (std::size_t i = 0; i < here; ++i) sums[i] = static_cast<A>(sums[i] / divisor);
    }
    const T* done = narrowed;
    if constexpr (__is_same(T, A)) {
      done = sums;
    } else {
      narrow(sums, narrowed, here);
    }
    for (std::size_t target = 0; target < job.target_count; ++target) {
      std::byte* place = job.targets[target] + first * sizeof(T);
      if (job.stream) {
        stream_without_fence(place, reinterpret_cast<const std::byte*>(done), here * sizeof(T));
      } else {
        __builtin_memcpy(place, done, here * sizeof(T));
      }
    }
  }
  if (job.stream) stream_fence();
}

template <class T>
void fill_row(Kernels& kernels, DataType type) {
  auto& row = kernels.reduce[static_cast<std::size_t>(type)];
  row[static_cast<std::size_t>(Reduction::sum)] = reduce_kernel<T, Add>;
  row[static_cast<std::size_t>(Reduction::average)] = reduce_kernel<T, Add>;
  row[static_cast<std::size_t>(Reduction::min)] = reduce_kernel<T, Smaller>;
  row[static_cast<std::size_t>(Reduction::max)] = reduce_kernel<T, Larger>;
  row[static_cast<std::size_t>(Reduction::product)] = reduce_kernel<T, Multiply>;
}

Kernels make_kernels(const char* name) {
  Kernels kernels{};
  kernels.name = name;
  kernels.copy_stream = copy_stream;
  fill_row<float>(kernels, DataType::f32);
  fill_row<double>(kernels, DataType::f64);
  fill_row<Half>(kernels, DataType::f16);
  fill_row<Brain>(kernels, DataType::bf16);
  fill_row<std::int32_t>(kernels, DataType::i32);
  fill_row<std::int64_t>(kernels, DataType::i64);
  fill_row<std::uint8_t>(kernels, DataType::u8);
  return kernels;
}

}  // namespace
