// Products with weights that are quantised in blocks, as templates: see kernel_vector.hpp. How a block is
// multiplied differs so much between instruction sets that each brings a `Tile` of its own.
#pragma once

#include "serve/cpu/kernel_vector.hpp"

namespace {

constexpr std::int64_t tokens_of_quantized_pass = 128;
// The columns of a block in groups of four, as wide as a lane: a panel's block is so many registers of 64
// bytes.
constexpr std::int64_t groups_of_block = block_columns / 4;
constexpr std::size_t int8_block_bytes = panel_rows * block_columns;
constexpr std::size_t int4_block_bytes = int8_block_bytes / 2;
constexpr std::size_t scales_block_bytes = panel_rows * 2;

template <class Tile, int tokens>
void block_tokens(const Product& job, std::int64_t panel, std::int64_t& token, std::int64_t end) {
  for (; token + tokens <= end; token += tokens) Tile::template run<tokens>(job, panel, token);
}

template <class Tile>
void block_product(const Product& job) {
  for (std::int64_t begin = 0; begin < job.tokens; begin += tokens_of_quantized_pass) {
    const std::int64_t end =
        begin + tokens_of_quantized_pass < job.tokens ? begin + tokens_of_quantized_pass : job.tokens;
    for (std::int64_t panel = 0; panel < job.panel_count; ++panel) {
      std::int64_t token = begin;
      if constexpr (Tile::tokens_max >= 16) block_tokens<Tile, 16>(job, panel, token, end);
      if constexpr (Tile::tokens_max >= 8) block_tokens<Tile, 8>(job, panel, token, end);
      block_tokens<Tile, 4>(job, panel, token, end);
      block_tokens<Tile, 2>(job, panel, token, end);
      block_tokens<Tile, 1>(job, panel, token, end);
    }
  }
}

inline void put_panel(const Product& job, std::int64_t panel, std::int64_t token, const Sixteen& sums) {
  for (int slice = 0; slice < slices; ++slice) {
    const std::int64_t row = panel * panel_rows + slice * lanes;
    float* const out = job.out + token * job.out_stride + row;
    Vector sum = sums.part[slice];
    if (job.bias != nullptr) sum = sum + load(job.bias + row);
    if (job.add) sum = load(out) + sum;
    store(out, sum);
  }
}

}  // namespace
