// Attention of tokens that are each the last of a sequence: bound by the reading of keys and values. The
// heads that share keys are the rows of a tile of sixteen; a warp takes a block of sixteen positions at a
// time, straight from memory into the registers of its products. Warps and splits of the context are put
// together at the end.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int tile_heads = 16;
// Of a split: fewer are not worth putting splits together.
constexpr int split_blocks_min = 16;
constexpr int decode_few_rows = 48;

struct Decode {
  Attention attention;
  Splits splits;
  int head_tiles;  // of the heads that share keys
};

// Sixteen positions of keys and values as a lane of the products has them.
template <int size>
struct Block {
  uint4 keys[2][size / 32];
  uint4 values[4][size / 64];
};

// Past the nearest cache: it is read once, and what is fetched early must not be what an earlier kernel left
// there.
__device__ inline uint4 fetch_or_zero(const Bf16* data, bool is_there) {
  return is_there ? __ldcg(reinterpret_cast<const uint4*>(data)) : make_uint4(0, 0, 0, 0);
}

template <int size>
__device__ void fetch(Block<size>& block, const Bf16* keys, int valid, int lane) {
  const int row = lane / 4;
  const int four = lane % 4;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int position = j * 8 + row;
#pragma unroll
    for (int h = 0; h < size / 32; ++h)
      block.keys[j][h] = fetch_or_zero(keys + position * size + h * 32 + four * 8, position < valid);
  }
  const Bf16* const values = keys + block_positions * size;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int position = four * 2 + j % 2 + j / 2 * 8;
#pragma unroll
    for (int h = 0; h < size / 64; ++h)
      block.values[j][h] = fetch_or_zero(values + position * size + h * 64 + row * 8, position < valid);
  }
}

// What a warp knows of its rows lane / 4 and lane / 4 + 8 so far.
template <int size>
struct Found {
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // of this lane's positions alone
  float sums[size / 8][4] = {};
};

__device__ inline unsigned word_of(const uint4& words, int at) {
  return at == 0 ? words.x : at == 1 ? words.y : at == 2 ? words.z : words.w;
}

template <int size>
__device__ void attend_block(Found<size>& found, const Block<size>& block,
                             const uint4 (&queries)[2][size / 32], float scale, int first, int begin, int end,
                             int lane) {
  float scores[2][4] = {};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int h = 0; h < size / 32; ++h)
      multiply_wide(scores[j], queries[0][h], queries[1][h], block.keys[j][h]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int position = first + j * 8 + lane % 4 * 2 + i % 2;
      scores[j][i] = position >= begin && position < end ? scores[j][i] * scale : -INFINITY;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float now = fmaxf(fmaxf(scores[0][half * 2], scores[0][half * 2 + 1]),
                      fmaxf(scores[1][half * 2], scores[1][half * 2 + 1]));
    now = fmaxf(now, __shfl_xor_sync(all_lanes, now, 1));
    now = fmaxf(now, __shfl_xor_sync(all_lanes, now, 2));
    now = fmaxf(now, found.largest[half]);
    const float kept = power_of_2(found.largest[half] - now);
    found.largest[half] = now;
    found.total[half] *= kept;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        scores[j][i] = power_of_2(scores[j][i] - now);
        found.total[half] += scores[j][i];
      }
    }
#pragma unroll
    for (int i = 0; i < size / 8; ++i) {
      found.sums[i][half * 2] *= kept;
      found.sums[i][half * 2 + 1] *= kept;
    }
  }
  const unsigned a0 = pair_of(scores[0][0], scores[0][1]);
  const unsigned a1 = pair_of(scores[0][2], scores[0][3]);
  const unsigned a2 = pair_of(scores[1][0], scores[1][1]);
  const unsigned a3 = pair_of(scores[1][2], scores[1][3]);
  // Column c of tile i of a half is its number c · 8 + i: a lane's eight side by side are of eight tiles.
#pragma unroll
  for (int h = 0; h < size / 64; ++h) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const unsigned mask = i % 2 == 0 ? 0x5410U : 0x7632U;
      const unsigned b0 =
          __byte_perm(word_of(block.values[0][h], i / 2), word_of(block.values[1][h], i / 2), mask);
      const unsigned b1 =
          __byte_perm(word_of(block.values[2][h], i / 2), word_of(block.values[3][h], i / 2), mask);
      multiply_tile(found.sums[h * 8 + i], a0, a1, a2, a3, b0, b1);
    }
  }
}

// A warp's part into shared memory: sums [head][number], largest and total of each head.
template <int size>
struct WarpPart {
  alignas(16) float sums[tile_heads][size + 4];
  float largest[tile_heads];
  float total[tile_heads];
};

template <int size>
__device__ void leave(WarpPart<size>& part, Found<size>& found, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + half * 8;
    float total = found.total[half];
    total += __shfl_xor_sync(all_lanes, total, 1);
    total += __shfl_xor_sync(all_lanes, total, 2);
    if (lane % 4 == 0) {
      part.largest[row] = found.largest[half];
      part.total[row] = total;
    }
#pragma unroll
    for (int eight = 0; eight < size / 32; ++eight) {
      const int c = half * 2 + eight % 2;
      float* const to = &part.sums[row][eight / 2 * 64 + (lane % 4 * 2 + eight % 2) * 8];
      const int i = eight / 2 * 8;
      write4(to,
             make_float4(found.sums[i][c], found.sums[i + 1][c], found.sums[i + 2][c], found.sums[i + 3][c]));
      write4(to + 4, make_float4(found.sums[i + 4][c], found.sums[i + 5][c], found.sums[i + 6][c],
                                 found.sums[i + 7][c]));
    }
  }
}

// Numbers of a partial result: the sums of a head, its largest, its total.
template <int size>
constexpr int part_floats = size + 2;

__device__ inline float weight_of(float largest, float of_all) {
  return largest == -INFINITY ? 0.0F : power_of_2(largest - of_all);
}

// `ahead`: blocks that a warp has under way.
template <int size, int warps, int ahead>
__global__ void __launch_bounds__(warps* warp) decode_kernel(Decode job) {
  __shared__ union {
    alignas(16) Bf16 queries[tile_heads][size + 8];
    WarpPart<size> parts[warps];
  } shared;
  __shared__ bool is_last;
  let_next_start();
  const Attention& attention = job.attention;
  const Turn& turn = attention.turn;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % warp;
  const int own_warp = thread / warp;
  const std::int64_t token = blockIdx.y;
  const int theirs = static_cast<int>(blockIdx.x) / job.head_tiles;
  const int head_tile = static_cast<int>(blockIdx.x) % job.head_tiles;
  const int group = turn.heads / turn.kv_heads;
  const int first_head = theirs * group + head_tile * tile_heads;
  const int heads = min(tile_heads, group - head_tile * tile_heads);
  Bf16* const out = static_cast<Bf16*>(attention.out) + token * attention.out_stride + first_head * size;

  const int position = __ldcg(attention.tokens.position + token);
  const int end = position + 1;
  const int begin = attention.window > 0 ? max(0, end - attention.window) : 0;
  const int first_block = begin / block_positions;
  const int blocks = (end + block_positions - 1) / block_positions - first_block;
  const auto splits_max = static_cast<int>(gridDim.z);
  const int splits = max(1, min(splits_max, blocks / split_blocks_min));
  const auto split = static_cast<int>(blockIdx.z);  // those that are not needed come last
  if (split >= splits || position < 0) {
    wait_for_earlier();  // who comes behind this kernel takes what came before it for ended
    for (int at = thread; at < heads * size && split == 0; at += warps * warp) out[at] = Bf16(0.0F);
    return;
  }
  const int each = (blocks + splits - 1) / splits;
  const int from = first_block + split * each;
  const int to = min(first_block + blocks, from + each);

  const int* const table = attention.tokens.tables + __ldcg(attention.tokens.table_at + token);
  // Which blocks the warp reads: those of its next 32, a lane each, so that no fetch waits for a place.
  int at = from + own_warp;
  int known_from = at;
  const auto look_up = [&](int first) {
    const int place = first + lane * warps;
    return place < to ? __ldcg(table + place) : 0;
  };
  int known = look_up(known_from);
  int known_next = look_up(known_from + warp * warps);
  // Each block that is under way has registers of its own: none is moved, because a move would wait for it.
  // Blocks of earlier steps are fetched before the kernel before this one has ended.
  const int own_block = position / block_positions;
  const auto fetch_at = [&](Block<size>& block, int place) {
    const int which = (place - known_from) / warps;  // up to 63
    const int own = __shfl_sync(all_lanes, which < warp ? known : known_next, which % warp);
    if (place >= to) return;
    fetch(block, keys_at<Bf16>(attention.cache, own, theirs), end - place * block_positions, lane);
  };
  Block<size> under_way[ahead];
#pragma unroll
  for (int i = 0; i < ahead; ++i) {
    if (at + i * warps < own_block) fetch_at(under_way[i], at + i * warps);
  }
  wait_for_earlier();

  const Bf16* const row = static_cast<const Bf16*>(attention.qkv) + token * turn.stride;
  constexpr int lanes = size / 8;  // of a head
  constexpr int heads_at_once = warps * warp / lanes;
  const int part_at = lane % lanes * 4;
#pragma unroll
  for (int i = 0; i < (tile_heads + heads_at_once - 1) / heads_at_once; ++i) {
    const int head = i * heads_at_once + thread / lanes;
    if (i * heads_at_once + own_warp * (warp / lanes) >= tile_heads) break;  // all of the warp
    HeadPart part{make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
    // All lanes of a warp go along, and what is no head's is put to zero.
    if (i * heads_at_once + own_warp * (warp / lanes) < heads) {
      part = turned_part<size>(turn, row, first_head + min(head, heads - 1), token, part_at);
      if (head >= heads) part = {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
    }
    write4(&shared.queries[head][part_at], part.first);
    write4(&shared.queries[head][size / 2 + part_at], part.second);
  }
  // Whoever reads the last block brings the token's own keys and values. Of several tiles of heads all write
  // the same.
  if (to == first_block + blocks && own_warp == warps - 1) {
    const int which = lane / lanes % 2;
    const int head = turn.heads + which * turn.kv_heads + theirs;
    const HeadPart part = turned_part<size>(turn, row, head, token, part_at);
    Bf16* const keys = keys_at<Bf16>(attention.cache, __ldcg(table + own_block), theirs) +
                       (which * block_positions + position % block_positions) * size;
    if (lane / lanes < 2) {
      write4(keys + part_at, part.first);
      write4(keys + size / 2 + part_at, part.second);
    }
  }
  __syncthreads();
  uint4 queries[2][size / 32];
#pragma unroll
  for (int h = 0; h < size / 32; ++h) {
    queries[0][h] = *reinterpret_cast<const uint4*>(&shared.queries[lane / 4][h * 32 + lane % 4 * 8]);
    queries[1][h] = *reinterpret_cast<const uint4*>(&shared.queries[lane / 4 + 8][h * 32 + lane % 4 * 8]);
  }
  __syncthreads();  // the parts lie where the queries were

#pragma unroll
  for (int i = 0; i < ahead; ++i) {
    if (at + i * warps >= own_block) fetch_at(under_way[i], at + i * warps);
  }

  const float scale = rsqrtf(static_cast<float>(size)) * 1.44269504F;
  Found<size> found;
  while (at < to) {
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (at >= to) break;
      attend_block(found, under_way[i], queries, scale, at * block_positions, begin, end, lane);
      fetch_at(under_way[i], at + ahead * warps);
      at += warps;
    }
    if (at - known_from >= warp * warps) {
      known_from += warp * warps;
      known = known_next;
      known_next = look_up(known_from + warp * warps);
    }
  }
  leave(shared.parts[own_warp], found, lane);
  __syncthreads();

  const std::int64_t slot = (token * turn.heads + first_head) * splits_max;
  for (int number = thread; number < heads * size; number += warps * warp) {
    const int head = number / size;
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < warps; ++i) largest = fmaxf(largest, shared.parts[i].largest[head]);
    float sum = 0;
    float total = 0;
#pragma unroll
    for (int i = 0; i < warps; ++i) {
      const float weight = weight_of(shared.parts[i].largest[head], largest);
      sum += weight * shared.parts[i].sums[head][number % size];
      total += weight * shared.parts[i].total[head];
    }
    if (splits == 1) {
      out[number] = static_cast<Bf16>(sum / total);
      continue;
    }
    float* const partial = job.splits.partial +
                           (slot + static_cast<std::int64_t>(head) * splits_max + split) * part_floats<size>;
    partial[number % size] = sum;
    if (number % size == 0) {
      partial[size] = largest;
      partial[size + 1] = total;
    }
  }
  if (splits == 1) return;

  __threadfence();
  __syncthreads();
  unsigned* const arrived = job.splits.arrived + token * turn.heads + first_head;
  if (thread == 0) is_last = atomicAdd(arrived, 1U) == static_cast<unsigned>(splits - 1);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (thread == 0) *arrived = 0;
  for (int number = thread; number < heads * size; number += warps * warp) {
    const int head = number / size;
    const float* const partials =
        job.splits.partial + (slot + static_cast<std::int64_t>(head) * splits_max) * part_floats<size>;
    float largest = -INFINITY;
    for (int i = 0; i < splits; ++i)
      largest = fmaxf(largest, __ldcg(partials + i * part_floats<size> + size));
    float sum = 0;
    float total = 0;
    for (int i = 0; i < splits; ++i) {
      const float* const partial = partials + i * part_floats<size>;
      const float weight = weight_of(__ldcg(partial + size), largest);
      sum += weight * __ldcg(partial + number % size);
      total += weight * __ldcg(partial + size + 1);
    }
    out[number] = static_cast<Bf16>(sum / total);
  }
}

}  // namespace

bool attends_fast(Type type, std::int32_t head_size, std::int32_t heads, std::int32_t kv_heads) {
  return type == Type::bf16 && (head_size == 64 || head_size == 128) && heads / kv_heads <= 64;
}

void attend_one(const Attention& attention, const Splits& splits, const Queue& queue) {
  const Turn& turn = attention.turn;
  const int head_tiles = (turn.heads / turn.kv_heads + tile_heads - 1) / tile_heads;
  const Decode job{attention, splits, head_tiles};
  const dim3 grid(static_cast<unsigned>(turn.kv_heads * head_tiles), static_cast<unsigned>(splits.rows),
                  static_cast<unsigned>(splits.splits));
  if (turn.head_size == 128) {
    launch(decode_kernel<128, 4, 2>, grid, 4 * warp, 0, queue, job);
  } else if (splits.by_one_warp) {
    launch(decode_kernel<64, 1, 4>, grid, warp, 0, queue, job);
  } else if (splits.rows <= decode_few_rows) {
    launch(decode_kernel<64, 8, 2>, grid, 8 * warp, 0, queue, job);
  } else {
    launch(decode_kernel<64, 4, 2>, grid, 4 * warp, 0, queue, job);
  }
}

}  // namespace tutti::serve::cuda
