// Attention of any head size in either type, straight from the formula: a block of threads a token and head.
// What it adds up and in which order depends on the token's position alone.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int plain_threads = 128;
constexpr int plain_head_max = 512;
constexpr int own_max = plain_head_max / plain_threads;  // numbers of a head that a thread adds up

__device__ float block_largest(float value) {
  __shared__ float largest[plain_threads / warp];
#pragma unroll
  for (int step = warp / 2; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(all_lanes, value, step));
  __syncthreads();
  if (threadIdx.x % warp == 0) largest[threadIdx.x / warp] = value;
  __syncthreads();
  value = largest[0];
#pragma unroll
  for (int i = 1; i < plain_threads / warp; ++i) value = fmaxf(value, largest[i]);
  return value;
}

template <class T>
__global__ void __launch_bounds__(plain_threads) plain_kernel(Attention job, std::int32_t first) {
  wait_for_earlier();
  let_next_start();
  __shared__ float query[plain_head_max];
  __shared__ float weights[plain_threads];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t token = first + static_cast<std::int64_t>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int size = job.turn.head_size;
  const int theirs = head / (job.turn.heads / job.turn.kv_heads);
  T* const out = static_cast<T*>(job.out) + token * job.out_stride + head * size;
  const int end = job.tokens.position[token] + 1;
  const int begin = job.window > 0 ? max(0, end - job.window) : 0;
  const int* const table = job.tokens.tables + job.tokens.table_at[token];
  const T* const queries = static_cast<const T*>(job.qkv) + token * job.turn.stride + head * size;
  for (int at = thread; at < size; at += plain_threads) query[at] = static_cast<float>(queries[at]);
  __syncthreads();
  const float scale = rsqrtf(static_cast<float>(size));
  float largest = -INFINITY;
  float total = 0;
  float own[own_max] = {};
  for (int base = begin; base < end; base += plain_threads) {
    const int position = base + thread;
    float score = -INFINITY;
    if (position < end) {
      const T* const keys = keys_at<T>(job.cache, table[position / block_positions], theirs) +
                            position % block_positions * size;
      float sum = 0;
      for (int at = 0; at < size; ++at) sum += query[at] * static_cast<float>(keys[at]);
      score = sum * scale;
    }
    const float now = fmaxf(largest, block_largest(score));
    const float weight = position < end ? expf(score - now) : 0.0F;
    weights[thread] = weight;
    const float kept = expf(largest - now);
    total = total * kept + block_sum(weight);  // meets: the weights are there
    largest = now;
    const int count = min(plain_threads, end - base);
#pragma unroll
    for (int i = 0; i < own_max; ++i) own[i] *= kept;
    for (int behind = 0; behind < count; ++behind) {
      const int seen = base + behind;
      const T* const values = keys_at<T>(job.cache, table[seen / block_positions], theirs) +
                              (block_positions + seen % block_positions) * size;
#pragma unroll
      for (int i = 0; i < own_max; ++i) {
        const int at = thread + i * plain_threads;
        if (at < size) own[i] += weights[behind] * static_cast<float>(values[at]);
      }
    }
    __syncthreads();  // before the weights are written again
  }
#pragma unroll
  for (int i = 0; i < own_max; ++i) {
    const int at = thread + i * plain_threads;
    if (at < size) out[at] = static_cast<T>(end > 0 ? own[i] / total : 0.0F);
  }
}

}  // namespace

void attend_plainly(const Attention& attention, std::int32_t first, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(attention.tokens.count - first),
                  static_cast<unsigned>(attention.turn.heads));
  with_type(attention.type, [&](auto type) {
    launch(plain_kernel<decltype(type)>, grid, plain_threads, 0, queue, attention, first);
  });
}

}  // namespace tutti::serve::cuda
