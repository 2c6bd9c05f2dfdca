// The first rows of a step: what the tokens are, and where they stand.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr unsigned embed_threads = 256;

template <class T>
__global__ void __launch_bounds__(embed_threads) embed_kernel(Embed embed) {
  wait_for_earlier();
  let_next_start();
  const std::int64_t row = blockIdx.x;
  const int known = embed.tokens.token[row];
  // Where nothing could be chosen, any token will do: what comes of it is dropped.
  const std::int64_t token = known >= 0 ? known : max(0, embed.chosen[-1 - known]);
  const int position = max(0, embed.tokens.position[row]);
  const T* const from = static_cast<const T*>(embed.embedding) + token * embed.columns;
  const T* const place = embed.positions == nullptr
                             ? nullptr
                             : static_cast<const T*>(embed.positions) + position * embed.columns;
  float* const to = embed.stream + row * embed.columns;
  for (std::int64_t at = threadIdx.x * 4; at < embed.columns; at += embed_threads * 4) {
    float4 values = read4(from + at);
    if (place != nullptr) {
      const float4 more = read4(place + at);
      values.x += more.x;
      values.y += more.y;
      values.z += more.z;
      values.w += more.w;
    }
    write4(to + at, values);
  }
  if (embed.frequencies == nullptr) return;
  for (int pair = threadIdx.x; pair < embed.pairs; pair += embed_threads) {
    // In doubles: a float's angle is off by whole turns at the end of a long context.
    double sine = 0;
    double cosine = 0;
    sincos(embed.frequencies[pair] * position, &sine, &cosine);
    embed.cosines[row * embed.pairs + pair] = static_cast<float>(embed.factor * cosine);
    embed.sines[row * embed.pairs + pair] = static_cast<float>(embed.factor * sine);
  }
}

}  // namespace

void embed(const Embed& embed, const Queue& queue) {
  with_type(embed.type, [&](auto type) {
    launch(embed_kernel<decltype(type)>, dim3(static_cast<unsigned>(embed.tokens.count)), embed_threads, 0,
           queue, embed);
  });
}

}  // namespace tutti::serve::cuda
