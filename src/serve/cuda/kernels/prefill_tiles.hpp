// The two ways to multiply the tiles of attention: by single warps (every GPU), or by groups of four warps
// whose products read shared memory themselves and run beside what the warps do (Hopper). A way knows how
// keys and values lie in shared memory, what its warps multiply, and how many rows a warp has. For kernels.
#pragma once

#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {

constexpr int tile_keys = 64;

// What a warp's rows have found so far: `tiles` times sixteen rows.
template <int size, int tiles>
struct Rows {
  unsigned queries[tiles][size / 16][4];
  float sums[tiles][size / 8][4];
  float largest[tiles][2];
  float total[tiles][2];
};

template <int tiles>
using Scores = float[tiles][tile_keys / 8][4];

// Scores as the weights of sixteen keys: what a product takes.
__device__ inline void weights_of(unsigned (&weights)[4], const float (&scores)[tile_keys / 8][4], int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto& of = scores[k * 2 + i / 2];
    weights[i] = pair_of(of[i % 2 * 2], of[i % 2 * 2 + 1]);
  }
}

template <int head_size>
struct ByWarps {
  static constexpr int size = head_size;
  static constexpr int tiles = size == 64 ? 2 : 1;  // as many as registers hold
  static constexpr int threads = 4 * warp;
  static constexpr int blocks = 1;  // of threads that a multiprocessor has room for, at least

  // Where 16 bytes of a row lie: shifted from row to row, so that eight rows are in different banks.
  __device__ static unsigned place_of(int row, int chunk) {
    return static_cast<unsigned>(row * size + (chunk ^ (row & 7)) * 8) * sizeof(Bf16);
  }
  __device__ static void settle_copies() { wait_for_copies(); }

  __device__ static void score(const Rows<size, tiles>& rows, Scores<tiles>& scores, unsigned keys,
                               int lane) {
#pragma unroll
    for (int j = 0; j < tile_keys / 8; ++j) {
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][j][i] = 0;
      }
#pragma unroll
      for (int four = 0; four < size / 32; ++four) {
        unsigned words[4];
        load_tiles(words, keys + place_of(j * 8 + lane % 8, four * 4 + lane / 8));
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
          const auto& first = rows.queries[m][four * 2];
          const auto& second = rows.queries[m][four * 2 + 1];
          multiply_tile(scores[m][j], first[0], first[1], first[2], first[3], words[0], words[1]);
          multiply_tile(scores[m][j], second[0], second[1], second[2], second[3], words[2], words[3]);
        }
      }
    }
  }

  __device__ static void add_values(Rows<size, tiles>& rows, const Scores<tiles>& scores, unsigned values,
                                    int lane) {
#pragma unroll
    for (int k = 0; k < tile_keys / 16; ++k) {
      unsigned weights[tiles][4];
#pragma unroll
      for (int m = 0; m < tiles; ++m) weights_of(weights[m], scores[m], k);
#pragma unroll
      for (int two = 0; two < size / 16; ++two) {
        unsigned words[4];
        load_tiles_turned(words, values + place_of(k * 16 + lane % 16, two * 2 + lane / 16));
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
          const auto& a = weights[m];
          multiply_tile(rows.sums[m][two * 2], a[0], a[1], a[2], a[3], words[0], words[1]);
          multiply_tile(rows.sums[m][two * 2 + 1], a[0], a[1], a[2], a[3], words[2], words[3]);
        }
      }
    }
  }
};

template <int head_size>
struct ByGroups {
  static constexpr int size = head_size;
  static constexpr int tiles = 1;
  static constexpr int threads = (size == 64 ? 2 : 1) * 4 * warp;
  static constexpr int blocks = size == 64 ? 2 : 3;

  // 64 columns side by side, as the products read them.
  static constexpr unsigned panel_bytes = tile_keys * panel_row_bytes;
  __device__ static unsigned place_of(int row, int chunk) {
    return static_cast<unsigned>(chunk / 8) * panel_bytes + static_cast<unsigned>(row) * panel_row_bytes +
           static_cast<unsigned>((chunk ^ row) & 7) * 16;
  }
  __device__ static void settle_copies() {
    wait_for_copies();
    show_copies_to_groups();
  }

  __device__ static void score(const Rows<size, tiles>& rows, Scores<tiles>& scores, unsigned keys, int) {
    begin_group_products();
#pragma unroll
    for (int k = 0; k < size / 16; ++k) {
      const unsigned panel =
          keys + static_cast<unsigned>(k / 4) * panel_bytes + static_cast<unsigned>(k % 4) * 32;
      multiply_panel<false>(&scores[0][0], rows.queries[0][k], panel, k > 0);
    }
    end_group_products();
  }

  __device__ static void add_values(Rows<size, tiles>& rows, const Scores<tiles>& scores, unsigned values,
                                    int) {
    unsigned weights[tile_keys / 16][4];
#pragma unroll
    for (int k = 0; k < tile_keys / 16; ++k) weights_of(weights[k], scores[0], k);
    begin_group_products();
#pragma unroll
    for (int k = 0; k < tile_keys / 16; ++k) {
#pragma unroll
      for (int panel = 0; panel < size / 64; ++panel) {
        multiply_panel<true>(&rows.sums[0][panel * 8], weights[k],
                             values + static_cast<unsigned>(panel) * panel_bytes +
                                 static_cast<unsigned>(k) * 16 * panel_row_bytes,
                             true);
      }
    }
    end_group_products();
  }
};

}  // namespace tutti::serve::cuda
