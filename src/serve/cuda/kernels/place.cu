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

// Of its head a lane has four numbers and the four that are turned with them.
template <int size>
__global__ void __launch_bounds__(place_warps* warp) place_eight_kernel(Place job) {
  constexpr int lanes = size / 8;
  constexpr int half = size / 2;
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
  const bool is_there = position >= 0;  // nobody leaves: lanes meet below
  const bool is_value = head >= turn.heads + turn.kv_heads;
  Bf16* const row = static_cast<Bf16*>(job.qkv) + (is_there ? token : 0) * turn.stride + head * size;
  float4 first = read4(row + at);
  float4 second = read4(row + half + at);
  if (turn.bias != nullptr) {
    first = sum_of(first, read4(turn.bias + head * size + at));
    second = sum_of(second, read4(turn.bias + head * size + half + at));
  }
  const float* const scale = head < turn.heads ? turn.query_norm : turn.key_norm;
  if (scale != nullptr) {
    float squares = first.x * first.x + first.y * first.y + first.z * first.z + first.w * first.w +
                    second.x * second.x + second.y * second.y + second.z * second.z + second.w * second.w;
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) squares += __shfl_xor_sync(all_lanes, squares, step);
    const float inverse = is_value ? 1.0F : rsqrtf(squares / static_cast<float>(size) + turn.epsilon);
    const float4 ones = make_float4(1, 1, 1, 1);
    const float4 a = is_value ? ones : read4(scale + at);
    const float4 b = is_value ? ones : read4(scale + half + at);
    first = make_float4(first.x * inverse * a.x, first.y * inverse * a.y, first.z * inverse * a.z,
                        first.w * inverse * a.w);
    second = make_float4(second.x * inverse * b.x, second.y * inverse * b.y, second.z * inverse * b.z,
                         second.w * inverse * b.w);
  }
  if (!is_there) return;
  if (turn.cosines != nullptr && !is_value) {
    const float4 c = read4(turn.cosines + token * half + at);
    const float4 s = read4(turn.sines + token * half + at);
    const float4 x = first;
    first = make_float4(x.x * c.x - second.x * s.x, x.y * c.y - second.y * s.y, x.z * c.z - second.z * s.z,
                        x.w * c.w - second.w * s.w);
    second = make_float4(second.x * c.x + x.x * s.x, second.y * c.y + x.y * s.y, second.z * c.z + x.z * s.z,
                         second.w * c.w + x.w * s.w);
  }
  Bf16* to = row;
  if (head >= turn.heads) {
    const int block = job.tokens.tables[job.tokens.table_at[token] + position / block_positions];
    to = keys_at<Bf16>(job.cache, block, (head - turn.heads) % turn.kv_heads) +
         (position % block_positions + (is_value ? block_positions : 0)) * size;
  }
  write4(to + at, first);
  write4(to + half + at, second);
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
    launch(size == 64 ? place_eight_kernel<64> : place_eight_kernel<128>,
           dim3(blocks_for(tokens * heads * (size / 8), place_warps * warp)), place_warps * warp, 0, queue,
           place);
    return;
  }
  with_type(place.type, [&](auto type) { place_of<decltype(type)>(place, tokens, queue); });
}

}  // namespace tutti::serve::cuda
