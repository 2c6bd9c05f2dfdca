// Attention of tokens side by side: bound by arithmetic. The rows of a block of threads are some tokens times
// the heads that share keys; keys and values pass by in tiles of 64 positions, two tiles in shared memory, so
// that the next is fetched while one is used. A row's largest score and its sums are kept in registers.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int tile_warps = 4;
constexpr int tile_threads = tile_warps * warp;
constexpr int tile_keys = 64;

// Tiles of sixteen rows that a warp has: as many as its registers hold.
__host__ __device__ constexpr int row_tiles(int size) { return size == 64 ? 2 : 1; }
constexpr int rows_of(int size) { return tile_warps * 16 * row_tiles(size); }
constexpr int shared_bytes(int size) { return 2 * 2 * tile_keys * size * static_cast<int>(sizeof(Bf16)); }

// Where 16 bytes of a row lie: shifted from row to row, so that eight rows are in different banks.
template <int size>
__device__ unsigned place_of(int row, int chunk) {
  return static_cast<unsigned>(row * size + (chunk ^ (row & 7)) * 8) * sizeof(Bf16);
}

template <int size>
__device__ void fetch_tile(const Attention& job, const int* table, int theirs, int tile, int end,
                           unsigned keys, unsigned values) {
  constexpr int chunks = size / 8;
#pragma unroll
  for (int i = 0; i < tile_keys * chunks / tile_threads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * tile_threads;
    const int row = at / chunks;
    const int position = tile * tile_keys + row;
    const bool is_there = position < end;
    const Bf16* from = static_cast<const Bf16*>(job.cache.data);
    if (is_there) {
      from = keys_at<Bf16>(job.cache, table[position / block_positions], theirs) +
             position % block_positions * size + at % chunks * 8;
    }
    const unsigned place = place_of<size>(row, at % chunks);
    copy_beside(keys + place, from, is_there);
    copy_beside(values + place, from + (is_there ? block_positions * size : 0), is_there);
  }
}

// What a warp's rows have found so far.
template <int size>
struct Rows {
  unsigned queries[row_tiles(size)][size / 16][4];
  float sums[row_tiles(size)][size / 8][4];
  float largest[row_tiles(size)][2];
  float total[row_tiles(size)][2];
};

using Scores = float[tile_keys / 8][4];

template <int size>
__device__ void score(const Rows<size>& rows, Scores (&scores)[row_tiles(size)], unsigned keys, int lane) {
#pragma unroll
  for (int j = 0; j < tile_keys / 8; ++j) {
#pragma unroll
    for (int m = 0; m < row_tiles(size); ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[m][j][i] = 0;
    }
#pragma unroll
    for (int four = 0; four < size / 32; ++four) {
      unsigned words[4];
      load_tiles(words, keys + place_of<size>(j * 8 + lane % 8, four * 4 + lane / 8));
#pragma unroll
      for (int m = 0; m < row_tiles(size); ++m) {
        const auto& first = rows.queries[m][four * 2];
        const auto& second = rows.queries[m][four * 2 + 1];
        multiply_tile(scores[m][j], first[0], first[1], first[2], first[3], words[0], words[1]);
        multiply_tile(scores[m][j], second[0], second[1], second[2], second[3], words[2], words[3]);
      }
    }
  }
}

template <int size>
__device__ void soften(Rows<size>& rows, Scores (&scores)[row_tiles(size)], float scale) {
#pragma unroll
  for (int m = 0; m < row_tiles(size); ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = rows.largest[m][half];
#pragma unroll
      for (int j = 0; j < tile_keys / 8; ++j)
        now = fmaxf(now, fmaxf(scores[m][j][half * 2], scores[m][j][half * 2 + 1]));
      now = fmaxf(now, __shfl_xor_sync(all_lanes, now, 1));
      now = fmaxf(now, __shfl_xor_sync(all_lanes, now, 2));
      // A row that has seen nothing yet.
      const float base = now == -INFINITY ? 0.0F : now * scale;
      const float kept = power_of_2(rows.largest[m][half] * scale - base);
      rows.largest[m][half] = now;
      float total = rows.total[m][half] * kept;
#pragma unroll
      for (int j = 0; j < tile_keys / 8; ++j) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          scores[m][j][i] = power_of_2(fmaf(scores[m][j][i], scale, -base));
          total += scores[m][j][i];
        }
      }
      rows.total[m][half] = total;
#pragma unroll
      for (int i = 0; i < size / 8; ++i) {
        rows.sums[m][i][half * 2] *= kept;
        rows.sums[m][i][half * 2 + 1] *= kept;
      }
    }
  }
}

template <int size>
__device__ void add_values(Rows<size>& rows, const Scores (&scores)[row_tiles(size)], unsigned values,
                           int lane) {
#pragma unroll
  for (int k = 0; k < tile_keys / 16; ++k) {
    unsigned weights[row_tiles(size)][4];
#pragma unroll
    for (int m = 0; m < row_tiles(size); ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& of = scores[m][k * 2 + i / 2];
        weights[m][i] = pair_of(of[i % 2 * 2], of[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int two = 0; two < size / 16; ++two) {
      unsigned words[4];
      load_tiles_turned(words, values + place_of<size>(k * 16 + lane % 16, two * 2 + lane / 16));
#pragma unroll
      for (int m = 0; m < row_tiles(size); ++m) {
        const auto& a = weights[m];
        multiply_tile(rows.sums[m][two * 2], a[0], a[1], a[2], a[3], words[0], words[1]);
        multiply_tile(rows.sums[m][two * 2 + 1], a[0], a[1], a[2], a[3], words[2], words[3]);
      }
    }
  }
}

// The row of a tile that a lane has: the half-th of the m-th sixteen.
__device__ inline int row_of(int own_warp, int tiles, int m, int half, int lane) {
  return (own_warp * tiles + m) * 16 + half * 8 + lane / 4;
}

template <int size>
__device__ void hide(Scores (&scores)[row_tiles(size)], int own_warp, int group, int first_position, int tile,
                     int window, int lane) {
#pragma unroll
  for (int m = 0; m < row_tiles(size); ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_position + row_of(own_warp, row_tiles(size), m, half, lane) / group;
      const int first_seen = window > 0 ? position - window + 1 : 0;
#pragma unroll
      for (int j = 0; j < tile_keys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = tile * tile_keys + j * 8 + lane % 4 * 2 + i;
          if (key > position || key < first_seen) scores[m][j][half * 2 + i] = -INFINITY;
        }
      }
    }
  }
}

template <int size>
__global__ void __launch_bounds__(tile_threads) tiles_kernel(Attention job, const Tile* tiles) {
  unsigned char* const shared = dynamic_memory();
  wait_for_earlier();
  let_next_start();
  constexpr unsigned stage_bytes = tile_keys * size * sizeof(Bf16);
  const unsigned keys = shared_address(shared);
  const unsigned values = keys + 2 * stage_bytes;
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int own_warp = static_cast<int>(threadIdx.x) / warp;
  const int theirs = static_cast<int>(blockIdx.y);
  const int group = job.turn.heads / job.turn.kv_heads;
  const Tile own = tiles[blockIdx.x];
  const int first_position = job.tokens.position[own.first];
  const int end = first_position + own.count;
  const int begin = job.window > 0 ? max(0, first_position - job.window + 1) : 0;
  const int* const table = job.tokens.tables + job.tokens.table_at[own.first];
  const int last_tile = (end - 1) / tile_keys;
  int tile = begin / tile_keys;
  fetch_tile<size>(job, table, theirs, tile, end, keys, values);
  commit_copies();

  Rows<size> rows;
#pragma unroll
  for (int m = 0; m < row_tiles(size); ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(own_warp, row_tiles(size), m, half, lane);
      const bool is_there = row < own.count * group;
      const Bf16* const queries = static_cast<const Bf16*>(job.qkv) +
                                  (own.first + (is_there ? row / group : 0)) * job.turn.stride +
                                  (theirs * group + row % group) * size + lane % 4 * 2;
#pragma unroll
      for (int k = 0; k < size / 16; ++k) {
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
          rows.queries[m][k][half + eight * 2] =
              is_there ? *reinterpret_cast<const unsigned*>(queries + k * 16 + eight * 8) : 0U;
        }
      }
      rows.largest[m][half] = -INFINITY;
      rows.total[m][half] = 0;
    }
#pragma unroll
    for (int i = 0; i < size / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) rows.sums[m][i][j] = 0;
    }
  }

  const float scale = rsqrtf(static_cast<float>(size)) * 1.44269504F;
  for (unsigned stage = 0; tile <= last_tile; ++tile, stage ^= 1U) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody uses the one before it any more
    if (tile < last_tile) {
      const unsigned next = (stage ^ 1U) * stage_bytes;
      fetch_tile<size>(job, table, theirs, tile + 1, end, keys + next, values + next);
      commit_copies();
    }
    Scores scores[row_tiles(size)];
    score<size>(rows, scores, keys + stage * stage_bytes, lane);
    const bool sees_all = (tile + 1) * tile_keys <= first_position + 1 &&
                          (job.window == 0 || tile * tile_keys > end - 1 - job.window);
    if (!sees_all) hide<size>(scores, own_warp, group, first_position, tile, job.window, lane);
    soften<size>(rows, scores, scale);
    add_values<size>(rows, scores, values + stage * stage_bytes, lane);
  }

#pragma unroll
  for (int m = 0; m < row_tiles(size); ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = rows.total[m][half];
      total += __shfl_xor_sync(all_lanes, total, 1);
      total += __shfl_xor_sync(all_lanes, total, 2);
      const int row = row_of(own_warp, row_tiles(size), m, half, lane);
      if (row >= own.count * group) continue;
      Bf16* const out = static_cast<Bf16*>(job.out) + (own.first + row / group) * job.out_stride +
                        (theirs * group + row % group) * size + lane % 4 * 2;
      const float inverse = 1.0F / total;
#pragma unroll
      for (int i = 0; i < size / 8; ++i) {
        *reinterpret_cast<unsigned*>(out + i * 8) =
            pair_of(rows.sums[m][i][half * 2] * inverse, rows.sums[m][i][half * 2 + 1] * inverse);
      }
    }
  }
}

}  // namespace

std::int32_t tile_tokens(std::int32_t head_size, std::int32_t heads, std::int32_t kv_heads) {
  return rows_of(head_size) / (heads / kv_heads);
}

void attend_tiles(const Attention& attention, const Tile* tiles, std::int32_t count, const Queue& queue) {
  const auto kernel = attention.turn.head_size == 64 ? tiles_kernel<64> : tiles_kernel<128>;
  const int bytes = shared_bytes(attention.turn.head_size);
  // Asked for each time: it costs little, and holds for the device that is current.
  static_cast<void>(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(attention.turn.kv_heads));
  launch(kernel, grid, tile_threads, static_cast<std::size_t>(bytes), queue, attention, tiles);
}

}  // namespace tutti::serve::cuda
