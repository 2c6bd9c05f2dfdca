// Queries, keys and values of tokens on their way to attention: bias, norm, turning; keys and values go into
// their blocks. A warp a head; where heads are of 64 or 128, some lanes a head with eight numbers each.
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

template <int size>
__global__ void __launch_bounds__(place_warps* warp) place_part_kernel(Place job) {
  constexpr int lanes = size / 8;
  wait_for_earlier();
  let_next_start();
  const Turn& turn = job.turn;
  const int all = turn.heads + 2 * turn.kv_heads;
  const std::int64_t item =
      (static_cast<std::int64_t>(blockIdx.x) * place_warps * warp + threadIdx.x) / lanes;
  const std::int64_t token = job.first + item / all;
  const int head = static_cast<int>(item % all);
  const int at = static_cast<int>(threadIdx.x) % lanes * 4;
  const int position = token < job.tokens.count ? job.tokens.position[token] : -1;
  const std::int64_t read = position < 0 ? 0 : token;  // who has nothing to do goes along: lanes meet
  Bf16* const row = static_cast<Bf16*>(job.qkv) + read * turn.stride;
  const HeadPart part = turned_part<size>(turn, row, head, read, at);
  if (position < 0) return;
  Bf16* to = row + head * size;
  if (head >= turn.heads) {
    const int block = job.tokens.tables[job.tokens.table_at[token] + position / block_positions];
    const bool is_value = head >= turn.heads + turn.kv_heads;
    to = keys_at<Bf16>(job.cache, block, (head - turn.heads) % turn.kv_heads) +
         (position % block_positions + (is_value ? block_positions : 0)) * size;
  }
  write4(to + at, part.first);
  write4(to + size / 2 + at, part.second);
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
  const int size = place.turn.head_size;
  if (place.type == Type::bf16 && (size == 64 || size == 128)) {
    const std::int64_t heads = place.turn.heads + 2 * place.turn.kv_heads;
    launch(size == 64 ? place_part_kernel<64> : place_part_kernel<128>,
           dim3(blocks_for(tokens * heads * (size / 8), place_warps * warp)), place_warps * warp, 0, queue,
           place);
    return;
  }
  with_type(place.type, [&](auto type) { place_of<decltype(type)>(place, tokens, queue); });
}

}  // namespace tutti::serve::cuda
