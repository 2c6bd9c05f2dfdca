// A matrix of fp8 becomes one of bf16, its scales taken in. Bound by memory: a warp has a row, a lane sixteen
// numbers at a time.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int widen_warps = 8;
constexpr int lane_codes = 16;

__device__ float4 scaled(const uint2& pairs, float scale) {
  return make_float4(low_of(pairs.x) * scale, high_of(pairs.x) * scale, low_of(pairs.y) * scale,
                     high_of(pairs.y) * scale);
}

__global__ void __launch_bounds__(widen_warps* warp) widen_kernel(Widen job) {
  // What the last product reads is written over.
  wait_for_earlier();
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * widen_warps + threadIdx.x / warp;
  if (row >= job.rows) return;
  const float scale = job.scales[row];
  const auto* const from = static_cast<const unsigned char*>(job.codes) + row * job.columns;
  Bf16* const to = static_cast<Bf16*>(job.out) + row * job.columns;
  for (std::int64_t at = lane * lane_codes; at < job.columns; at += warp * lane_codes) {
    const uint4 codes = fetch_once(from + at);
    write8(to + at, {scaled(widened4(codes.x), scale), scaled(widened4(codes.y), scale)});
    write8(to + at + 8, {scaled(widened4(codes.z), scale), scaled(widened4(codes.w), scale)});
  }
}

}  // namespace

void widen(const Widen& widen, const Queue& queue) {
  launch(widen_kernel, dim3(blocks_for(widen.rows, widen_warps)), widen_warps * warp, 0, queue, widen);
}

}  // namespace tutti::serve::cuda
