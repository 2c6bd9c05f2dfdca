// Between the two products of a feed-forward part.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr unsigned activate_threads = 256;

template <class T>
__global__ void __launch_bounds__(activate_threads) activate_kernel(Activate job) {
  wait_for_earlier();
  let_next_start();
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.y) * activate_threads + threadIdx.x) * 4;
  if (at >= job.width) return;
  const std::int64_t row = blockIdx.x;
  const T* const wide = static_cast<const T*>(job.wide) + row * job.width * (job.gated ? 2 : 1);
  float4 values = read4(wide + at);
  if (job.bias != nullptr) {
    const float4 bias = read4(job.bias + at);
    values = make_float4(values.x + bias.x, values.y + bias.y, values.z + bias.z, values.w + bias.w);
  }
  values = make_float4(bent(job.activation, values.x), bent(job.activation, values.y),
                       bent(job.activation, values.z), bent(job.activation, values.w));
  if (job.gated) {
    float4 beside = read4(wide + job.width + at);
    if (job.bias != nullptr) {
      const float4 bias = read4(job.bias + job.width + at);
      beside = make_float4(beside.x + bias.x, beside.y + bias.y, beside.z + bias.z, beside.w + bias.w);
    }
    values = make_float4(values.x * beside.x, values.y * beside.y, values.z * beside.z, values.w * beside.w);
  }
  write4(static_cast<T*>(job.out) + row * job.width + at, values);
}

}  // namespace

void activate(const Activate& activate, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(activate.rows), blocks_for(activate.width, activate_threads * 4));
  with_type(activate.type, [&](auto type) {
    launch(activate_kernel<decltype(type)>, grid, activate_threads, 0, queue, activate);
  });
}

}  // namespace tutti::serve::cuda
