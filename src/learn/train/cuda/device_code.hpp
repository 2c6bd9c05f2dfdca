// What the kernels share: reading and writing eight elements at once, sums over threads, launches. For nvcc
// alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "learn/train/cuda/kernels.hpp"

namespace tutti::train::cuda {

using Bf16 = __nv_bfloat16;

// Elements that a thread takes at once: 16 bytes of bf16, twice that of f32.
constexpr int width = 8;
constexpr int warp = 32;
constexpr int block_threads = 256;

struct Values {
  float at[width];
};

// Eight elements as they lie in memory. Kernels fetch all the chunks they need before they look at the first,
// so that many loads are under way at once. In words, because a register holds one whatever its size: bf16
// would take twice the registers.
template <class T>
struct alignas(16) Chunk {
  static constexpr int words = width * static_cast<int>(sizeof(T)) / 4;
  unsigned word[words];
};

template <class T>
__device__ Chunk<T> fetch_vector(const T* data) {
  Chunk<T> chunk;
#pragma unroll
  for (int i = 0; i < Chunk<T>::words; i += 4) {
    const uint4 four = reinterpret_cast<const uint4*>(data)[i / 4];
    chunk.word[i] = four.x;
    chunk.word[i + 1] = four.y;
    chunk.word[i + 2] = four.z;
    chunk.word[i + 3] = four.w;
  }
  return chunk;
}

template <class T>
__device__ void put_vector(T* data, const Chunk<T>& chunk) {
#pragma unroll
  for (int i = 0; i < Chunk<T>::words; i += 4) {
    reinterpret_cast<uint4*>(data)[i / 4] =
        make_uint4(chunk.word[i], chunk.word[i + 1], chunk.word[i + 2], chunk.word[i + 3]);
  }
}

template <class T>
__device__ Values widen(const Chunk<T>& chunk) {
  Values values;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if constexpr (sizeof(T) == 4) {
      values.at[i] = __uint_as_float(chunk.word[i]);
    } else {
      // A bf16 is the upper half of a float.
      const unsigned pair = chunk.word[i / 2];
      values.at[i] = __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
    }
  }
  return values;
}

template <class T>
__device__ Chunk<T> narrow(const Values& values) {
  Chunk<T> chunk;
#pragma unroll
  for (int i = 0; i < Chunk<T>::words; ++i) {
    if constexpr (sizeof(T) == 4) {
      chunk.word[i] = __float_as_uint(values.at[i]);
    } else {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values.at[2 * i], values.at[2 * i + 1]);
      memcpy(&chunk.word[i], &pair, sizeof(pair));
    }
  }
  return chunk;
}

// The elements [begin, begin + width) of data, zeros from `end` on. `aligned` says that data + begin lies at
// 16 bytes.
template <class T>
__device__ Chunk<T> fetch(const T* data, std::int64_t begin, std::int64_t end, bool aligned) {
  if (aligned && begin + width <= end) return fetch_vector(data + begin);
  Values values;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    values.at[i] = begin + i < end ? static_cast<float>(data[begin + i]) : 0.0F;
  }
  return narrow<T>(values);
}

template <class T>
__device__ void put(T* data, std::int64_t begin, std::int64_t end, bool aligned, const Chunk<T>& chunk) {
  if (aligned && begin + width <= end) return put_vector(data + begin, chunk);
  const Values values = widen(chunk);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if (begin + i < end) data[begin + i] = static_cast<T>(values.at[i]);
  }
}

template <class T>
__device__ Values read(const T* data, std::int64_t begin, std::int64_t end, bool aligned) {
  return widen(fetch(data, begin, end, aligned));
}

template <class T>
__device__ void write(T* data, std::int64_t begin, std::int64_t end, bool aligned, const Values& values) {
  put(data, begin, end, aligned, narrow<T>(values));
}

__device__ inline float sigmoid(float x) { return __fdividef(1.0F, 1.0F + __expf(-x)); }

// The sum over a warp, in every lane.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int step = warp / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  return value;
}

// The sum over `threads` neighbours, in each of them: a warp, or the whole block.
template <int threads>
__device__ float sum_over(float value) {
  value = warp_sum(value);
  if constexpr (threads > warp) {
    __shared__ float sums[threads / warp];
    __syncthreads();
    if (threadIdx.x % warp == 0) sums[threadIdx.x / warp] = value;
    __syncthreads();
    value = warp_sum(threadIdx.x % warp < threads / warp ? sums[threadIdx.x % warp] : 0.0F);
  }
  return value;
}

// ---- launches

inline bool starts_at_16_bytes(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) return false;
  }
  return true;
}

// Whether every row of such matrices begins at 16 bytes.
inline bool rows_aligned(std::int64_t columns, std::initializer_list<const void*> pointers) {
  return columns % width == 0 && starts_at_16_bytes(pointers);
}

inline unsigned blocks_for(std::int64_t count, std::int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

inline void check_launch(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + " on the GPU: " + cudaGetErrorString(error));
  }
}

// Calls `work` with a value of the type, which says nothing but what it is.
template <class Work>
void with_type(Type type, const Work& work) {
  switch (type) {
    case Type::f32:
      return work(float{});
    case Type::bf16:
      return work(Bf16{});
  }
}

// operation(begin, count) for every chunk of a flat array.
template <class Operation>
__global__ void __launch_bounds__(block_threads) each_chunk(std::int64_t count, Operation operation) {
  const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) * width;
  if (begin < count) operation(begin, count);
}

template <class Operation>
void launch_chunks(const char* what, std::int64_t count, const Operation& operation, Stream stream) {
  if (count == 0) return;
  each_chunk<<<blocks_for(count, block_threads * width), block_threads, 0,
               static_cast<cudaStream_t>(stream)>>>(count, operation);
  check_launch(what);
}

// operation(row, column) for every chunk of every row, a block a row.
template <class Operation>
__global__ void each_row(std::int64_t columns, Operation operation) {
  for (std::int64_t column = threadIdx.x * width; column < columns; column += blockDim.x * width) {
    operation(static_cast<std::int64_t>(blockIdx.x), column);
  }
}

template <class Operation>
void launch_rows(const char* what, Size size, const Operation& operation, Stream stream) {
  if (size.rows == 0 || size.columns == 0) return;
  constexpr unsigned threads_max = 512;
  const unsigned warps = blocks_for(size.columns, width * warp);
  const unsigned threads = warps * warp < threads_max ? warps * warp : threads_max;
  each_row<<<static_cast<unsigned>(size.rows), threads, 0, static_cast<cudaStream_t>(stream)>>>(size.columns,
                                                                                                operation);
  check_launch(what);
}

// ---- sums over rows, in two steps: pieces of the rows first, then the pieces

// Of a matrix as wide as `columns`, two of them one behind the other if there is a second target. Adds.
struct PieceSums {
  std::int64_t pieces;
  std::int64_t columns;
  std::int64_t stride;  // from one piece to the next
  const float* sums;
  void* target;
  void* second_target;  // or null
};
void add_pieces(Type type, const PieceSums& pieces, Stream stream);

}  // namespace tutti::train::cuda
