// Attention of tokens side by side: bound by arithmetic. The rows of a block of threads are some tokens times
// the heads that share keys; keys and values pass by in tiles of 64 positions, two tiles in shared memory, so
// that the next is fetched while one is used. A row's largest score and its sums are kept in registers.
#include "serve/cuda/kernels/prefill_tiles.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int rows_of(int size) { return size == 64 ? 128 : 64; }
constexpr int shared_bytes(int size) { return 2 * 2 * tile_keys * size * static_cast<int>(sizeof(Bf16)); }

// Fetches tiles of keys and values. Which blocks the next one lies in is read a tile ahead: the address of a
// copy waits for nothing.
template <class Way>
struct Fetch {
  static constexpr int chunks = Way::size / 8;
  static constexpr int times = tile_keys * chunks / Way::threads;
  static_assert(rows_of(Way::size) == Way::threads / warp * 16 * Way::tiles);

  const Attention& job;
  const int* table;
  int theirs;
  int end;
  int blocks[times];  // of the tile that comes next

  __device__ static int row_at(int i) { return (static_cast<int>(threadIdx.x) + i * Way::threads) / chunks; }

  __device__ void look_up(int tile) {
#pragma unroll
    for (int i = 0; i < times; ++i) {
      const int position = tile * tile_keys + row_at(i);
      blocks[i] = position < end ? table[position / block_positions] : -1;
    }
  }

  __device__ void copy(int tile, unsigned keys, unsigned values) const {
#pragma unroll
    for (int i = 0; i < times; ++i) {
      const int row = row_at(i);
      const int chunk = (static_cast<int>(threadIdx.x) + i * Way::threads) % chunks;
      const bool is_there = blocks[i] >= 0 && tile * tile_keys + row < end;
      const Bf16* from = static_cast<const Bf16*>(job.cache.data);
      if (is_there)
        from = keys_at<Bf16>(job.cache, blocks[i], theirs) + row % block_positions * Way::size + chunk * 8;
      const unsigned place = Way::place_of(row, chunk);
      copy_beside(keys + place, from, is_there);
      copy_beside(values + place, from + (is_there ? block_positions * Way::size : 0), is_there);
    }
    commit_copies();
  }
};

// The weights of a tile's keys from its scores. What was summed before is made smaller only where a larger
// score has come: after the first tiles that is rare.
template <int size, int tiles>
__device__ void soften(Rows<size, tiles>& rows, Scores<tiles>& scores, float scale) {
  float base[tiles][2];
  float kept[tiles][2];
  bool grows = false;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = fmaxf(scores[m][0][half * 2], scores[m][0][half * 2 + 1]);
#pragma unroll
      for (int j = 1; j < tile_keys / 8; ++j)
        now = fmaxf(now, fmaxf(scores[m][j][half * 2], scores[m][j][half * 2 + 1]));
      now = fmaxf(now, __shfl_xor_sync(all_lanes, now, 1));
      now = fmaxf(now, __shfl_xor_sync(all_lanes, now, 2));
      now = fmaxf(now, rows.largest[m][half]);
      // A row that has seen nothing yet.
      base[m][half] = now == -INFINITY ? 0.0F : now * scale;
      kept[m][half] = power_of_2(rows.largest[m][half] * scale - base[m][half]);
      grows = grows || now != rows.largest[m][half];
      rows.largest[m][half] = now;
    }
  }
  if (__ballot_sync(all_lanes, grows) != 0) {
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows.total[m][half] *= kept[m][half];
#pragma unroll
        for (int i = 0; i < size / 8; ++i) {
          rows.sums[m][i][half * 2] *= kept[m][half];
          rows.sums[m][i][half * 2 + 1] *= kept[m][half];
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sums[2] = {0, 0};  // of two chains, which need not wait for one another
#pragma unroll
      for (int j = 0; j < tile_keys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[m][j][half * 2 + i];
          score = power_of_2(fmaf(score, scale, -base[m][half]));
          sums[i] += score;
        }
      }
      rows.total[m][half] += sums[0] + sums[1];
    }
  }
}

// The row of a tile that a lane has: the half-th of the m-th sixteen.
__device__ inline int row_of(int own_warp, int tiles, int m, int half, int lane) {
  return (own_warp * tiles + m) * 16 + half * 8 + lane / 4;
}

template <int tiles>
__device__ void hide(Scores<tiles>& scores, int own_warp, int group, int first_position, int tile, int window,
                     int lane) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_position + row_of(own_warp, tiles, m, half, lane) / group;
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

template <class Way>
__global__ void __launch_bounds__(Way::threads, Way::blocks) tiles_kernel(Attention job, const Tile* work) {
  constexpr int size = Way::size;
  constexpr int tiles = Way::tiles;
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
  const Tile own = work[blockIdx.x];
  const int first_position = job.tokens.position[own.first];
  const int end = first_position + own.count;
  const int begin = job.window > 0 ? max(0, first_position - job.window + 1) : 0;
  const int last_tile = (end - 1) / tile_keys;
  int tile = begin / tile_keys;
  Fetch<Way> fetch{job, job.tokens.tables + job.tokens.table_at[own.first], theirs, end, {}};
  fetch.look_up(tile);
  fetch.copy(tile, keys, values);
  fetch.look_up(tile + 1);

  Rows<size, tiles> rows;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(own_warp, tiles, m, half, lane);
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
    Way::settle_copies();
    __syncthreads();  // the tile is there, and nobody uses the one before it any more
    if (tile < last_tile) {
      const unsigned next = (stage ^ 1U) * stage_bytes;
      fetch.copy(tile + 1, keys + next, values + next);
      fetch.look_up(tile + 2);
    }
    Scores<tiles> scores;
    Way::score(rows, scores, keys + stage * stage_bytes, lane);
    const bool sees_all = (tile + 1) * tile_keys <= first_position + 1 &&
                          (job.window == 0 || tile * tile_keys > end - 1 - job.window);
    if (!sees_all) hide<tiles>(scores, own_warp, group, first_position, tile, job.window, lane);
    soften<size, tiles>(rows, scores, scale);
    Way::add_values(rows, scores, values + stage * stage_bytes, lane);
  }

#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = rows.total[m][half];
      total += __shfl_xor_sync(all_lanes, total, 1);
      total += __shfl_xor_sync(all_lanes, total, 2);
      const int row = row_of(own_warp, tiles, m, half, lane);
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

template <class Way>
void attend(const Attention& attention, const Tile* tiles, std::int32_t count, const Queue& queue) {
  const int bytes = shared_bytes(Way::size);
  // Asked for each time: it costs little, and holds for the device that is current.
  static_cast<void>(
      cudaFuncSetAttribute(tiles_kernel<Way>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(attention.turn.kv_heads));
  launch(tiles_kernel<Way>, grid, Way::threads, static_cast<std::size_t>(bytes), queue, attention, tiles);
}

}  // namespace

std::int32_t tile_tokens(std::int32_t head_size, std::int32_t heads, std::int32_t kv_heads) {
  return rows_of(head_size) / (heads / kv_heads);
}

void attend_tiles(const Attention& attention, const Tile* tiles, std::int32_t count, const Queue& queue) {
  if (attention.turn.head_size == 64) {
    (multiplies_by_groups() ? attend<ByGroups<64>> : attend<ByWarps<64>>)(attention, tiles, count, queue);
  } else {
    (multiplies_by_groups() ? attend<ByGroups<128>> : attend<ByWarps<128>>)(attention, tiles, count, queue);
  }
}

}  // namespace tutti::serve::cuda
