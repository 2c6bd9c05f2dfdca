// The sums of a step and the step itself, over flat memory.
#include "learn/train/cuda/device_code.hpp"

namespace tutti::train::cuda {
namespace {

constexpr int square_blocks = static_cast<int>(square_sums) - 1;

__device__ double block_sum(double value) {
  __shared__ double sums[block_threads];
  sums[threadIdx.x] = value;
  for (int half = block_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  return sums[0];
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    squares_kernel(std::int64_t count, const T* x, bool aligned, double* parts) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads * width;
  std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) * width;
  double sum = 0;
#pragma unroll 4
  for (; begin < count; begin += step) {
    const Values values = read(x, begin, count, aligned);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < width; ++i) squares += values.at[i] * values.at[i];
    sum += static_cast<double>(squares);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(block_threads) sum_parts(int parts, const double* from, double* result) {
  double sum = 0;
  for (int part = static_cast<int>(threadIdx.x); part < parts; part += block_threads) sum += from[part];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

template <class T>
struct Add {
  const T* x;
  float* sum;
  bool aligned;

  __device__ void operator()(std::int64_t begin, std::int64_t count) const {
    const Chunk<T> more_raw = fetch(x, begin, count, aligned);
    Values values = read(sum, begin, count, aligned);
    const Values more = widen(more_raw);
#pragma unroll
    for (int i = 0; i < width; ++i) values.at[i] += more.at[i];
    write(sum, begin, count, aligned, values);
  }
};

template <class Gradient, class Weight>
struct Step {
  AdamW o;
  const Gradient* gradient;
  float* master;
  float* first;
  float* second;
  Weight* weight;
  bool aligned;

  __device__ void operator()(std::int64_t begin, std::int64_t count) const {
    const Chunk<Gradient> g_raw = fetch(gradient, begin, count, aligned);
    Values w = read(master, begin, count, aligned);
    Values m = read(first, begin, count, aligned);
    Values v = read(second, begin, count, aligned);
    const Values g = widen(g_raw);
    const float keep = 1.0F - o.learning_rate * o.decay;
    const float step = o.learning_rate / o.correction1;
    const float unbias = rsqrtf(o.correction2);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float scaled = g.at[i] * o.gradient_scale;
      m.at[i] = o.beta1 * m.at[i] + (1.0F - o.beta1) * scaled;
      v.at[i] = o.beta2 * v.at[i] + (1.0F - o.beta2) * scaled * scaled;
      w.at[i] = keep * w.at[i] - step * m.at[i] / (sqrtf(v.at[i]) * unbias + o.epsilon);
    }
    write(first, begin, count, aligned, m);
    write(second, begin, count, aligned, v);
    write(master, begin, count, aligned, w);
    if (weight != nullptr) write(weight, begin, count, aligned, w);
  }
};

}  // namespace

void sum_of_squares(Type type, std::int64_t count, const void* x, double* sums, Stream stream) {
  const unsigned needed = blocks_for(count, block_threads * width);
  const unsigned blocks = needed < square_blocks ? needed : square_blocks;
  const auto on = static_cast<cudaStream_t>(stream);
  with_type(type, [&](auto value) {
    using T = decltype(value);
    if (blocks == 0) return;
    squares_kernel<<<blocks, block_threads, 0, on>>>(count, static_cast<const T*>(x), starts_at_16_bytes({x}),
                                                     sums + 1);
  });
  sum_parts<<<1, block_threads, 0, on>>>(static_cast<int>(blocks), sums + 1, sums);
  check_launch("sum_of_squares");
}

void add(Type type, std::int64_t count, const void* x, float* sum, Stream stream) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    launch_chunks("add", count, Add<T>{static_cast<const T*>(x), sum, starts_at_16_bytes({x, sum})}, stream);
  });
}

void adamw(const AdamW& options, const AdamWState& s, Stream stream) {
  const bool aligned = starts_at_16_bytes({s.gradient, s.master, s.first_moment, s.second_moment, s.weight});
  with_type(s.gradient_type, [&](auto gradient) {
    with_type(s.weight_type, [&](auto weight) {
      using Gradient = decltype(gradient);
      using Weight = decltype(weight);
      const Step<Gradient, Weight> step{
          options,         static_cast<const Gradient*>(s.gradient), s.master, s.first_moment,
          s.second_moment, static_cast<Weight*>(s.weight),           aligned};
      launch_chunks("adamw", s.count, step, stream);
    });
  });
}

}  // namespace tutti::train::cuda
