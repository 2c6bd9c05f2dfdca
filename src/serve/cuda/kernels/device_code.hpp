// What the kernels share: numbers of either type, sums over threads, products of small tiles. For nvcc, or
// for a test's machine that stands for a GPU.
#pragma once

#ifdef TUTTI_EMULATED
#include "serve/cuda/kernels/emulator_test.hpp"
#else
#include "serve/cuda/kernels/machine.hpp"
#endif

#include <cstdint>

#include "serve/cuda/kernels/kernels.hpp"

namespace tutti::serve::cuda {

// ---- launches

inline unsigned blocks_for(std::int64_t count, std::int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

template <class Work>
void with_type(Type type, const Work& work) {
  switch (type) {
    case Type::f32:
      return work(float{});
    case Type::bf16:
      return work(Bf16{});
  }
}

// ---- numbers

// A bf16 is the upper half of a float.
__device__ inline float low_of(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_of(unsigned pair) { return __uint_as_float(pair & 0xffff0000U); }

// Four numbers at once.
__device__ inline float4 read4(const float* data) { return *reinterpret_cast<const float4*>(data); }
__device__ inline float4 read4(const Bf16* data) {
  const uint2 words = *reinterpret_cast<const uint2*>(data);
  return make_float4(low_of(words.x), high_of(words.x), low_of(words.y), high_of(words.y));
}
__device__ inline void write4(float* data, float4 values) { *reinterpret_cast<float4*>(data) = values; }
__device__ inline void write4(Bf16* data, float4 values) {
  *reinterpret_cast<uint2*>(data) = make_uint2(pair_of(values.x, values.y), pair_of(values.z, values.w));
}

// Eight at once: a whole line of a warp's reads is 512 bytes of bf16.
struct Eight {
  float4 low;
  float4 high;
};
__device__ inline Eight read8(const float* data) { return {read4(data), read4(data + 4)}; }
__device__ inline Eight read8(const Bf16* data) {
  const uint4 words = *reinterpret_cast<const uint4*>(data);
  return {make_float4(low_of(words.x), high_of(words.x), low_of(words.y), high_of(words.y)),
          make_float4(low_of(words.z), high_of(words.z), low_of(words.w), high_of(words.w))};
}
__device__ inline void write8(float* data, const Eight& values) {
  write4(data, values.low);
  write4(data + 4, values.high);
}
__device__ inline void write8(Bf16* data, const Eight& values) {
  *reinterpret_cast<uint4*>(data) =
      make_uint4(pair_of(values.low.x, values.low.y), pair_of(values.low.z, values.low.w),
                 pair_of(values.high.x, values.high.y), pair_of(values.high.z, values.high.w));
}

__device__ inline float4 sum_of(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ inline float4 product_of(float4 a, float4 b, float c) {
  return make_float4(a.x * b.x * c, a.y * b.y * c, a.z * b.z * c, a.w * b.w * c);
}
__device__ inline float square_of(float4 a) { return a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w; }

__device__ inline float bent(Activation activation, float x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::gelu:
      return 0.5F * x * (1.0F + erff(x * 0.70710678F));
    case Activation::gelu_tanh:
      return 0.5F * x * (1.0F + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    case Activation::silu:
      return x / (1.0F + __expf(-x));
  }
  return x;
}

// ---- over threads

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int step = warp / 2; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

// Over a block of up to 1024 threads, in each of them. All call it.
__device__ inline float block_sum(float value) {
  __shared__ float sums[warp];
  const unsigned warps = blockDim.x / warp;
  value = warp_sum(value);
  __syncthreads();  // those of the last call have been read
  if (threadIdx.x % warp == 0) sums[threadIdx.x / warp] = value;
  __syncthreads();
  return warp_sum(threadIdx.x % warp < warps ? sums[threadIdx.x % warp] : 0.0F);
}

// ---- tiles

// The same over 32 of the inner numbers, of which each lane has eight side by side of each row: in another
// order than the instruction's, which is the same for both.
__device__ inline void multiply_wide(float (&sums)[4], const uint4& a_low, const uint4& a_high,
                                     const uint4& b) {
  multiply_tile(sums, a_low.x, a_high.x, a_low.y, a_high.y, b.x, b.y);
  multiply_tile(sums, a_low.z, a_high.z, a_low.w, a_high.w, b.z, b.w);
}

// The same over 64 of them, of which each lane has sixteen side by side of each row, those of a as fp8.
__device__ inline void multiply_codes(float (&sums)[4], const uint4& a_low, const uint4& a_high,
                                      const uint4& b_first, const uint4& b_second) {
  const auto widened8 = [](unsigned first, unsigned second) {
    const uint2 low = widened4(first);
    const uint2 high = widened4(second);
    return make_uint4(low.x, low.y, high.x, high.y);
  };
  multiply_wide(sums, widened8(a_low.x, a_low.y), widened8(a_high.x, a_high.y), b_first);
  multiply_wide(sums, widened8(a_low.z, a_low.w), widened8(a_high.z, a_high.w), b_second);
}

// ---- heads

// The pairs (at, at + size / 2) of a head that a lane of its warp has.
template <int pairs_max>
struct HeadPairs {
  float first[pairs_max];
  float second[pairs_max];
};

// Bias, norm and turning of one head by one warp. `head`: its number in a row of qkv. The numbers are read
// from `numbers`; pairs beyond the head are zero.
template <int pairs_max, class T>
__device__ HeadPairs<pairs_max> turned(const Turn& turn, const T* numbers, int head, std::int64_t token,
                                       int lane) {
  const int half = (turn.head_size + 1) / 2;
  const bool has_second = turn.head_size % 2 == 0;
  HeadPairs<pairs_max> pairs;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < pairs_max; ++i) {
    const int at = lane + i * warp;
    pairs.first[i] = pairs.second[i] = 0;
    if (at >= half) continue;
    const bool both = has_second || at + half < turn.head_size;
    pairs.first[i] = static_cast<float>(numbers[at]);
    if (both) pairs.second[i] = static_cast<float>(numbers[at + half]);
    if (turn.bias != nullptr) {
      pairs.first[i] += turn.bias[head * turn.head_size + at];
      if (both) pairs.second[i] += turn.bias[head * turn.head_size + at + half];
    }
    squares += pairs.first[i] * pairs.first[i] + pairs.second[i] * pairs.second[i];
  }
  const float* scale = head < turn.heads ? turn.query_norm : turn.key_norm;
  if (head >= turn.heads + turn.kv_heads) return pairs;  // values stay as they are
  if (scale != nullptr) {
    const float inverse = rsqrtf(warp_sum(squares) / static_cast<float>(turn.head_size) + turn.epsilon);
#pragma unroll
    for (int i = 0; i < pairs_max; ++i) {
      const int at = lane + i * warp;
      if (at >= half) continue;
      pairs.first[i] *= inverse * scale[at];
      if (at + half < turn.head_size) pairs.second[i] *= inverse * scale[at + half];
    }
  }
  if (turn.cosines != nullptr) {
#pragma unroll
    for (int i = 0; i < pairs_max; ++i) {
      const int at = lane + i * warp;
      if (at >= half) continue;
      const float cosine = turn.cosines[token * half + at];
      const float sine = turn.sines[token * half + at];
      const float first = pairs.first[i];
      pairs.first[i] = first * cosine - pairs.second[i] * sine;
      pairs.second[i] = pairs.second[i] * cosine + first * sine;
    }
  }
  return pairs;
}

template <int pairs_max, class T>
__device__ void write_pairs(T* to, const HeadPairs<pairs_max>& pairs, int head_size, int lane) {
  const int half = (head_size + 1) / 2;
#pragma unroll
  for (int i = 0; i < pairs_max; ++i) {
    const int at = lane + i * warp;
    if (at >= half) continue;
    to[at] = static_cast<T>(pairs.first[i]);
    if (at + half < head_size) to[at + half] = static_cast<T>(pairs.second[i]);
  }
}

// The same for heads of 64 or 128, by size / 8 lanes: of the head each has four numbers from `at` on, and the
// four that are turned with them. All lanes of the warp call it. `row`: of qkv.
struct HeadPart {
  float4 first;
  float4 second;
};
template <int size>
__device__ HeadPart turned_part(const Turn& turn, const Bf16* row, int head, std::int64_t token, int at) {
  constexpr int half = size / 2;
  constexpr int lanes = size / 8;
  const bool is_value = head >= turn.heads + turn.kv_heads;
  HeadPart part{read4(row + head * size + at), read4(row + head * size + half + at)};
  const bool turns = turn.cosines != nullptr && !is_value;
  const float4 zero = make_float4(0, 0, 0, 0);
  const float4 c = turns ? read4(turn.cosines + token * half + at) : zero;
  const float4 s = turns ? read4(turn.sines + token * half + at) : zero;
  if (turn.bias != nullptr) {
    part.first = sum_of(part.first, read4(turn.bias + head * size + at));
    part.second = sum_of(part.second, read4(turn.bias + head * size + half + at));
  }
  if (turn.query_norm != nullptr || turn.key_norm != nullptr) {
    float squares = square_of(part.first) + square_of(part.second);
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) squares += __shfl_xor_sync(all_lanes, squares, step);
    const float* const scale = head < turn.heads ? turn.query_norm : turn.key_norm;
    if (scale != nullptr && !is_value) {
      const float inverse = rsqrtf(squares / static_cast<float>(size) + turn.epsilon);
      part.first = product_of(part.first, read4(scale + at), inverse);
      part.second = product_of(part.second, read4(scale + half + at), inverse);
    }
  }
  if (!turns) return part;
  const float4 x = part.first;
  const float4 y = part.second;
  return {
      make_float4(x.x * c.x - y.x * s.x, x.y * c.y - y.y * s.y, x.z * c.z - y.z * s.z, x.w * c.w - y.w * s.w),
      make_float4(y.x * c.x + x.x * s.x, y.y * c.y + x.y * s.y, y.z * c.z + x.z * s.z,
                  y.w * c.w + x.w * s.w)};
}

// The place of a position's keys of one head; its values are block_positions · head_size behind.
template <class T>
__device__ T* keys_at(const Cache& cache, int block, int head) {
  return static_cast<T*>(cache.data) +
         (static_cast<std::int64_t>(block) * cache.kv_heads + head) * 2 * block_positions * cache.head_size;
}

}  // namespace tutti::serve::cuda
