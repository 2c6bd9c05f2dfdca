// Between the two products of a feed-forward part.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr unsigned activate_threads = 128;
constexpr int each = 8;

__device__ Eight plus(const Eight& values, const float* bias) {
  if (bias == nullptr) return values;
  const Eight more = read8(bias);
  return {sum_of(values.low, more.low), sum_of(values.high, more.high)};
}

__device__ float4 bent_of(Activation activation, float4 x) {
  return make_float4(bent(activation, x.x), bent(activation, x.y), bent(activation, x.z),
                     bent(activation, x.w));
}

__device__ float4 times(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

template <class T>
__global__ void __launch_bounds__(activate_threads) activate_kernel(Activate job) {
  wait_for_earlier();
  let_next_start();
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.y) * activate_threads + threadIdx.x) * each;
  if (at >= job.width) return;
  const std::int64_t row = blockIdx.x;
  const T* const wide = static_cast<const T*>(job.wide) + row * job.width * (job.gated ? 2 : 1);
  // Both are under way before one of them is needed.
  Eight values = read8(wide + at);
  Eight beside = job.gated ? read8(wide + job.width + at) : Eight{};
  values = plus(values, job.bias == nullptr ? nullptr : job.bias + at);
  values = {bent_of(job.activation, values.low), bent_of(job.activation, values.high)};
  if (job.gated) {
    beside = plus(beside, job.bias == nullptr ? nullptr : job.bias + job.width + at);
    values = {times(values.low, beside.low), times(values.high, beside.high)};
  }
  write8(static_cast<T*>(job.out) + row * job.width + at, values);
}

}  // namespace

void activate(const Activate& activate, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(activate.rows), blocks_for(activate.width, activate_threads * each));
  with_type(activate.type, [&](auto type) {
    launch(activate_kernel<decltype(type)>, grid, activate_threads, 0, queue, activate);
  });
}

}  // namespace tutti::serve::cuda
