// LayerNorm and RMSNorm of the stream. A row is read once and stays in the registers of its block.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int held = 4;  // times four numbers, by each thread

template <class T>
__global__ void __launch_bounds__(1024) norm_kernel(NormRows job) {
  wait_for_earlier();
  let_next_start();
  const Norm& norm = job.norm;
  const std::int64_t row = blockIdx.x;
  float* const from = job.stream + (job.rows == nullptr ? row : job.rows[row]) * job.stride;
  T* const to = static_cast<T*>(job.out) + row * job.stride;
  const int stride = static_cast<int>(job.stride);
  const int columns = static_cast<int>(norm.columns);
  const auto step = static_cast<int>(blockDim.x) * 4;
  float4 values[held];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int at = static_cast<int>(threadIdx.x) * 4 + i * step;
    values[i] = at < stride ? read4(from + at) : make_float4(0, 0, 0, 0);
    sum += values[i].x + values[i].y + values[i].z + values[i].w;
  }
  const bool is_rms = norm.bias == nullptr;
  const float mean = is_rms ? 0.0F : block_sum(sum) / static_cast<float>(columns);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int at = static_cast<int>(threadIdx.x) * 4 + i * step;
    const float* const four = &values[i].x;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float off = at + j < columns ? four[j] - mean : 0.0F;
      squares += off * off;
    }
  }
  const float inverse = rsqrtf(block_sum(squares) / static_cast<float>(columns) + norm.epsilon);
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int at = static_cast<int>(threadIdx.x) * 4 + i * step;
    if (at >= stride) continue;
    const float4 scale = read4(norm.scale + at);
    const float4 bias = is_rms ? make_float4(0, 0, 0, 0) : read4(norm.bias + at);
    const float4 x = values[i];
    write4(to + at,
           make_float4((x.x - mean) * inverse * scale.x + bias.x, (x.y - mean) * inverse * scale.y + bias.y,
                       (x.z - mean) * inverse * scale.z + bias.z, (x.w - mean) * inverse * scale.w + bias.w));
    if (job.added == nullptr) continue;
    const float4 added = read4(job.added + at);
    write4(from + at, make_float4(x.x + added.x, x.y + added.y, x.z + added.z, x.w + added.w));
  }
}

constexpr unsigned sum_threads = 128;

// A thread a column, so that a sum does not depend on how many rows there are beside it.
__global__ void __launch_bounds__(sum_threads) sum_kernel(SumRows job) {
  wait_for_earlier();
  let_next_start();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * sum_threads + threadIdx.x;
  if (column >= job.stride) return;
  double sum = job.adds ? job.sums[column] : 0.0;
  for (std::int64_t row = 0; row < job.count; ++row)
    sum += static_cast<double>(job.rows[row * job.stride + column]);
  job.sums[column] = sum;
}

}  // namespace

void sum_rows(const SumRows& sum, const Queue& queue) {
  launch(sum_kernel, dim3(blocks_for(sum.stride, sum_threads)), sum_threads, 0, queue, sum);
}

void norm_rows(const NormRows& norm, const Queue& queue) {
  // Whole warps, each thread with at most `held` times four numbers, better with one or two.
  const std::int64_t fours = norm.stride / 4;
  unsigned threads = 128;
  while (threads < 1024 && threads * 2 < fours) threads *= 2;
  with_type(norm.type, [&](auto type) {
    launch(norm_kernel<decltype(type)>, dim3(static_cast<unsigned>(norm.count)), threads, 0, queue, norm);
  });
}

}  // namespace tutti::serve::cuda
