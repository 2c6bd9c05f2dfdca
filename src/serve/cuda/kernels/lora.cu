// What adapters add to a product: each row is shrunk to as many numbers as its adapter's rank, and those are
// expanded into the product's own. Rows of one adapter that stand side by side share what is read of it; a
// row's sums do not depend on its neighbours. Which adapters there are is read on the device, so that a
// recorded step serves any of them.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int tile_rows = 8;  // that a block of threads looks at
constexpr unsigned lora_threads = 256;
constexpr unsigned lora_warps = lora_threads / warp;

// The first row behind `first` that has another adapter.
__device__ int run_end(const std::int32_t* adapter, int first, int end) {
  int next = first + 1;
  while (next < end && adapter[next] == adapter[first]) ++next;
  return next;
}

template <class T>
__global__ void __launch_bounds__(lora_threads) shrink_kernel(LoraProduct job) {
  wait_for_earlier();
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x % warp);
  const int number = static_cast<int>(blockIdx.y * lora_warps + threadIdx.x / warp);
  const int part = number / job.rank_max;
  const int row_of_part = number % job.rank_max;
  if (part >= job.parts) return;
  const int begin = static_cast<int>(blockIdx.x) * tile_rows;
  const int end = min(begin + tile_rows, job.rows);
  for (int first = begin, next = 0; first < end; first = next) {
    next = run_end(job.adapter, first, end);
    if (job.adapter[first] == 0) continue;
    const LoraChange& change = job.changes[job.adapter[first]];
    if (row_of_part >= change.rank || change.shrink[part] == nullptr) continue;
    const T* const weights = static_cast<const T*>(change.shrink[part]) + row_of_part * job.columns;
    const T* const values = static_cast<const T*>(job.values) + first * job.columns;
    float sums[tile_rows] = {};
    for (std::int64_t at = lane * 4; at < job.columns; at += warp * 4) {
      const float4 weight = read4(weights + at);
#pragma unroll
      for (int row = 0; row < tile_rows; ++row) {
        if (first + row >= next) continue;
        const float4 value = read4(values + row * job.columns + at);
        sums[row] += weight.x * value.x + weight.y * value.y + weight.z * value.z + weight.w * value.w;
      }
    }
#pragma unroll
    for (int row = 0; row < tile_rows; ++row) {
      if (first + row >= next) continue;
      const float sum = warp_sum(sums[row]);
      if (lane == 0) job.shrunk[(first + row) * std::int64_t{job.parts} * job.rank_max + number] = sum;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(lora_threads) expand_kernel(LoraProduct job) {
  wait_for_earlier();
  let_next_start();
  const int part = static_cast<int>(blockIdx.z);
  const std::int64_t feature = std::int64_t{blockIdx.y} * lora_threads + threadIdx.x;
  if (feature >= job.features[part]) return;
  const int begin = static_cast<int>(blockIdx.x) * tile_rows;
  const int end = min(begin + tile_rows, job.rows);
  const std::int64_t stride = std::int64_t{job.parts} * job.rank_max;
  for (int first = begin, next = 0; first < end; first = next) {
    next = run_end(job.adapter, first, end);
    if (job.adapter[first] == 0) continue;
    const LoraChange& change = job.changes[job.adapter[first]];
    if (change.expand[part] == nullptr) continue;
    const T* const weights = static_cast<const T*>(change.expand[part]) + feature;
    const float* const shrunk = job.shrunk + first * stride + part * job.rank_max;
    float sums[tile_rows] = {};
    for (int at = 0; at < change.rank; ++at) {
      const float weight = static_cast<float>(weights[at * job.features[part]]);
#pragma unroll
      for (int row = 0; row < tile_rows; ++row) {
        if (first + row < next) sums[row] += weight * shrunk[row * stride + at];
      }
    }
#pragma unroll
    for (int row = 0; row < tile_rows; ++row) {
      if (first + row >= next) continue;
      const std::int64_t place = (first + row) * job.out_stride + job.first_feature[part] + feature;
      // Past the nearest cache: blocks of other multiprocessors write into the same lines, and the next
      // kernel may be there already.
      if (job.added_to != nullptr) {
        job.added_to[place] = __ldcg(job.added_to + place) + sums[row];
      } else {
        T* const out = static_cast<T*>(job.out) + place;
        *out = static_cast<T>(static_cast<float>(__ldcg(out)) + sums[row]);
      }
    }
  }
}

}  // namespace

void add_lora(const LoraProduct& product, const Queue& queue) {
  const unsigned tiles = blocks_for(product.rows, tile_rows);
  const std::int64_t numbers = std::int64_t{product.parts} * product.rank_max;
  std::int64_t widest = 0;
  for (std::int32_t part = 0; part < product.parts; ++part)
    widest = product.features[part] > widest ? product.features[part] : widest;
  with_type(product.type, [&](auto type) {
    using T = decltype(type);
    launch(shrink_kernel<T>, dim3(tiles, blocks_for(numbers, lora_warps)), lora_threads, 0, queue, product);
    launch(expand_kernel<T>,
           dim3(tiles, blocks_for(widest, lora_threads), static_cast<unsigned>(product.parts)), lora_threads,
           0, queue, product);
  });
}

}  // namespace tutti::serve::cuda
