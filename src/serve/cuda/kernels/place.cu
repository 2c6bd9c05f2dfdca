// Queries, keys and values of tokens on their way to attention: bias, norm, turning; keys and values go into
// their blocks. A warp a head.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int place_warps = 8;

template <class T, int pairs_max>
__global__ void __launch_bounds__(place_warps* warp) place_kernel(Place job) {
  wait_for_earlier();
  let_next_start();
  const Turn& turn = job.turn;
  const std::int64_t token = job.first + static_cast<std::int64_t>(blockIdx.x);
  const int position = job.tokens.position[token];
  if (position < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int block = job.tokens.tables[job.tokens.table_at[token] + position / block_positions];
  const int slot = position % block_positions;
  T* const row = static_cast<T*>(job.qkv) + token * turn.stride;
  const int all = turn.heads + 2 * turn.kv_heads;
  for (int head = static_cast<int>(threadIdx.x) / warp; head < all; head += place_warps) {
    T* const numbers = row + static_cast<std::int64_t>(head) * turn.head_size;
    const auto pairs = turned<pairs_max>(turn, numbers, head, token, lane);
    if (head < turn.heads) {
      __syncwarp();  // all have read
      write_pairs(numbers, pairs, turn.head_size, lane);
      continue;
    }
    const bool is_key = head < turn.heads + turn.kv_heads;
    const int theirs = (head - turn.heads) % turn.kv_heads;
    T* const keys = keys_at<T>(job.cache, block, theirs);
    write_pairs(keys + (slot + (is_key ? 0 : block_positions)) * turn.head_size, pairs, turn.head_size, lane);
  }
}

template <class T>
void place_of(const Place& job, unsigned tokens, const Queue& queue) {
  const auto kernel = job.turn.head_size <= 64    ? place_kernel<T, 1>
                      : job.turn.head_size <= 128 ? place_kernel<T, 2>
                                                  : place_kernel<T, 8>;
  launch(kernel, dim3(tokens), place_warps * warp, 0, queue, job);
}

}  // namespace

void place(const Place& place, const Queue& queue) {
  const auto tokens = static_cast<unsigned>(place.tokens.count - place.first);
  with_type(place.type, [&](auto type) { place_of<decltype(type)>(place, tokens, queue); });
}

}  // namespace tutti::serve::cuda
