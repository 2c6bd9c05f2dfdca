// Layers with experts: who goes where, and the products of each expert with the rows that came to it. Nothing
// of it is known to the host, so that a step needs no answer from the device in between.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int route_warps = 4;
constexpr int group_threads = 1024;
constexpr int expert_warps = 4;
constexpr int expert_threads = expert_warps * warp;
constexpr int expert_features = 16;  // of a block of threads
constexpr int expert_rows = 8;       // at a time

__device__ double warp_sum(double value) {
#pragma unroll
  for (int step = warp / 2; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

// A warp chooses the largest of a token's scores, of equal ones the first.
__device__ void choose_experts(const Routing& routing, float* scores, std::int64_t token, int lane) {
  float largest = -INFINITY;
  for (int expert = lane; expert < routing.experts; expert += warp) largest = fmaxf(largest, scores[expert]);
#pragma unroll
  for (int step = warp / 2; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, step));
  double total = 0;
  for (int expert = lane; expert < routing.experts; expert += warp) {
    scores[expert] = expf(scores[expert] - largest);
    total += static_cast<double>(scores[expert]);
  }
  total = warp_sum(total);
  const std::int64_t first = token * routing.chosen;
  double kept = 0;
  for (int rank = 0; rank < routing.chosen; ++rank) {
    float best = -2;
    int best_expert = routing.experts;
    for (int expert = lane; expert < routing.experts; expert += warp) {
      if (scores[expert] > best) {
        best = scores[expert];
        best_expert = expert;
      }
    }
#pragma unroll
    for (int step = warp / 2; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(all_lanes, best, step);
      const int other_expert = __shfl_xor_sync(all_lanes, best_expert, step);
      if (other > best || (other == best && other_expert < best_expert)) {
        best = other;
        best_expert = other_expert;
      }
    }
    // Where scores are no numbers nobody is the largest: then the first ones.
    if (best_expert >= routing.experts) best_expert = rank;
    if (lane == 0) {
      routing.place_expert[first + rank] = best_expert;
      routing.place_weight[first + rank] = best;
      scores[best_expert] = -1;  // chosen: below every other
    }
    kept += static_cast<double>(best);
    __syncwarp();
  }
  for (int rank = lane; rank < routing.chosen; rank += warp) {
    float& weight = routing.place_weight[first + rank];
    weight = static_cast<float>(static_cast<double>(weight) / (routing.normalized ? kept : total));
  }
}

template <class T>
__global__ void __launch_bounds__(route_warps* warp) route_kernel(Route job) {
  wait_for_earlier();
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int own_warp = static_cast<int>(threadIdx.x) / warp;
  const std::int64_t token = blockIdx.x;
  const T* const values = static_cast<const T*>(job.values) + token * job.columns;
  float* const scores = job.scores + token * job.routing.experts;
  for (int expert = own_warp; expert < job.routing.experts; expert += route_warps) {
    const float* const weights = job.router + expert * job.columns;
    float sum = 0;
    for (std::int64_t at = lane * 4; at < job.columns; at += warp * 4) {
      const float4 x = read4(values + at);
      const float4 w = read4(weights + at);
      sum += x.x * w.x + x.y * w.y + x.z * w.z + x.w * w.w;
    }
    sum = cuda::warp_sum(sum);
    if (lane == 0) scores[expert] = sum;
  }
  __syncthreads();
  if (own_warp == 0) choose_experts(job.routing, scores, token, lane);
}

// One block: it counts the places of each expert and gives each place a row. Which of an expert's rows a
// place gets is left to chance, because no number depends on it.
__global__ void __launch_bounds__(group_threads) group_kernel(Routing routing) {
  __shared__ int counts[experts_max + 1];
  wait_for_earlier();
  let_next_start();
  const int thread = static_cast<int>(threadIdx.x);
  const int places = routing.tokens * routing.chosen;
  for (int expert = thread; expert <= routing.experts; expert += group_threads) counts[expert] = 0;
  __syncthreads();
  for (int place = thread; place < places; place += group_threads)
    atomicAdd(&counts[routing.place_expert[place]], 1);
  __syncthreads();
  if (thread == 0) {
    int sum = 0;
    for (int expert = 0; expert <= routing.experts; ++expert) {
      const int count = counts[expert];
      counts[expert] = sum;
      routing.expert_first[expert] = sum;
      sum += count;
    }
  }
  __syncthreads();
  for (int place = thread; place < places; place += group_threads) {
    const int row = atomicAdd(&counts[routing.place_expert[place]], 1);
    routing.place_row[place] = row;
    routing.row_place[row] = place;
  }
}

// The row of `values` that a row of an expert is.
__device__ std::int64_t source_of(const ExpertProduct& job, int row) {
  return job.by_token ? job.routing.row_place[row] / job.routing.chosen : row;
}

template <bool is_fp8>
__global__ void __launch_bounds__(expert_threads) expert_kernel_bf16(ExpertProduct job) {
  constexpr int element_bytes = is_fp8 ? 1 : 2;
  constexpr int lane_columns = 16 / element_bytes;
  constexpr int warp_columns = 4 * lane_columns;
  alignas(16) __shared__ float parts[expert_warps][warp][4];
  wait_for_earlier();
  let_next_start();
  const auto expert = static_cast<int>(blockIdx.y);
  const int end = job.routing.expert_first[expert + 1];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % warp;
  const int own_warp = thread / warp;
  const std::int64_t feature = static_cast<std::int64_t>(blockIdx.x) * expert_features;
  const auto* const low = static_cast<const unsigned char*>(job.weights[expert]) +
                          ((feature + lane / 4) * job.columns + lane % 4 * lane_columns) * element_bytes;
  const auto* const high = low + 8 * job.columns * element_bytes;
  for (int base = job.routing.expert_first[expert]; base < end; base += expert_rows) {
    const int row = base + lane / 4;
    const bool is_there = row < end;
    const Bf16* const values = static_cast<const Bf16*>(job.values) +
                               (is_there ? source_of(job, row) : 0) * job.columns + lane % 4 * lane_columns;
    const auto read = [&](std::int64_t at) {
      return is_there ? *reinterpret_cast<const uint4*>(values + at) : make_uint4(0, 0, 0, 0);
    };
    float sums[4] = {};
    for (std::int64_t column = own_warp * warp_columns; column < job.columns;
         column += expert_warps * warp_columns) {
      const uint4 x = read(column);
      const uint4 a_low = *reinterpret_cast<const uint4*>(low + column * element_bytes);
      const uint4 a_high = *reinterpret_cast<const uint4*>(high + column * element_bytes);
      if constexpr (is_fp8) {
        multiply_codes(sums, a_low, a_high, x, read(column + 8));
      } else {
        multiply_wide(sums, a_low, a_high, x);
      }
    }
    write4(parts[own_warp][lane], make_float4(sums[0], sums[1], sums[2], sums[3]));
    __syncthreads();
    const int out_row = base + thread / expert_features;
    const int own = thread % expert_features;
    if (out_row < end) {
      const int from = own % 8 * 4 + thread / expert_features / 2;
      const int at = own / 8 * 2 + thread / expert_features % 2;
      float total = 0;
#pragma unroll
      for (int i = 0; i < expert_warps; ++i) total += parts[i][from][at];
      if (is_fp8) total *= job.scales[expert][feature + own];
      if (job.biases != nullptr) total += job.biases[expert][feature + own];
      static_cast<Bf16*>(job.out)[out_row * job.features + feature + own] = static_cast<Bf16>(total);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(expert_threads) expert_kernel_f32(ExpertProduct job) {
  wait_for_earlier();
  let_next_start();
  const auto expert = static_cast<int>(blockIdx.y);
  const int end = job.routing.expert_first[expert + 1];
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int own_warp = static_cast<int>(threadIdx.x) / warp;
  for (int row = job.routing.expert_first[expert]; row < end; ++row) {
    const float* const values = static_cast<const float*>(job.values) + source_of(job, row) * job.columns;
    for (int own = own_warp; own < expert_features; own += expert_warps) {
      const std::int64_t feature = static_cast<std::int64_t>(blockIdx.x) * expert_features + own;
      const float* const weights = static_cast<const float*>(job.weights[expert]) + feature * job.columns;
      float sum = 0;
      for (std::int64_t at = lane; at < job.columns; at += warp) sum += values[at] * weights[at];
      sum = cuda::warp_sum(sum);
      if (lane != 0) continue;
      if (job.biases != nullptr) sum += job.biases[expert][feature];
      static_cast<float*>(job.out)[row * job.features + feature] = sum;
    }
  }
}

constexpr unsigned mix_threads = 256;

template <class T>
__global__ void __launch_bounds__(mix_threads) mix_kernel(Mix job) {
  wait_for_earlier();
  let_next_start();
  const std::int64_t token = blockIdx.x;
  const int chosen = job.routing.chosen;
  for (std::int64_t at = threadIdx.x * 4; at < job.columns; at += mix_threads * 4) {
    float4 sum = read4(job.stream + token * job.columns + at);
    for (std::int64_t place = token * chosen; place < (token + 1) * chosen; ++place) {
      const float weight = job.routing.place_weight[place];
      const float4 x =
          read4(static_cast<const T*>(job.out) + job.routing.place_row[place] * job.columns + at);
      sum =
          make_float4(sum.x + weight * x.x, sum.y + weight * x.y, sum.z + weight * x.z, sum.w + weight * x.w);
    }
    write4(job.stream + token * job.columns + at, sum);
  }
}

}  // namespace

void route(const Route& route, const Queue& queue) {
  with_type(route.type, [&](auto type) {
    launch(route_kernel<decltype(type)>, dim3(static_cast<unsigned>(route.routing.tokens)),
           route_warps * warp, 0, queue, route);
  });
  launch(group_kernel, dim3(1), group_threads, 0, queue, route.routing);
}

void multiply_experts(const ExpertProduct& product, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(product.features / expert_features),
                  static_cast<unsigned>(product.routing.experts));
  const auto kernel = product.type == Type::f32   ? expert_kernel_f32
                      : product.scales != nullptr ? expert_kernel_bf16<true>
                                                  : expert_kernel_bf16<false>;
  launch(kernel, grid, expert_threads, 0, queue, product);
}

void mix(const Mix& mix, const Queue& queue) {
  with_type(mix.type, [&](auto type) {
    launch(mix_kernel<decltype(type)>, dim3(static_cast<unsigned>(mix.routing.tokens)), mix_threads, 0, queue,
           mix);
  });
}

}  // namespace tutti::serve::cuda
