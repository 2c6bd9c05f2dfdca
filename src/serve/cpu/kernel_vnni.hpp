// Products of quantised numbers with AVX-512 VNNI: see kernel_vector.hpp.
#pragma once

#include <immintrin.h>

#include "serve/cpu/kernel_blocks.hpp"

namespace {

// How far ahead of the sums weights are asked for: across the edge of a page, where the CPU itself stops
// looking.
constexpr std::size_t ahead_bytes = 4096;

struct Int8Block {
  static constexpr std::size_t bytes = int8_block_bytes;
  static void read(const std::byte* block, __m512i (&groups)[groups_of_block]) {
    // The instruction takes one side without a sign: the weights, because they are turned once for all
    // tokens.
    const __m512i zero = _mm512_set1_epi8(static_cast<char>(int8_zero));
#pragma GCC unroll 8
    for (int g = 0; g < groups_of_block; ++g)
      groups[g] = _mm512_xor_si512(_mm512_loadu_si512(block + g * 64), zero);
  }
};
struct Int4Block {
  static constexpr std::size_t bytes = int4_block_bytes;
  static void read(const std::byte* block, __m512i (&groups)[groups_of_block]) {
    const __m512i low = _mm512_set1_epi8(0xf);
#pragma GCC unroll 4
    for (int g = 0; g < groups_of_block / 2; ++g) {
      const __m512i both = _mm512_loadu_si512(block + g * 64);
      groups[g] = _mm512_and_si512(both, low);
      groups[g + groups_of_block / 2] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
  }
};

template <class Block>
struct Avx512Tile {
  static constexpr int tokens_max = 16;

  template <int tokens>
  static void run(const Product& job, std::int64_t panel, std::int64_t token) {
    const std::int64_t blocks = job.columns / block_columns;
    const std::byte* const base = job.panels + static_cast<std::size_t>(panel) * job.panel_bytes;
    const std::byte* const scales = base + static_cast<std::size_t>(blocks) * Block::bytes;
    const std::int8_t* const quants = job.quants + token * job.columns;
    const float* const token_scales = job.scales + token * blocks;
    const std::int32_t* const offsets = job.offsets + token * blocks;
    const std::int64_t columns = job.columns;
    __m512 sums[tokens];
#pragma GCC unroll 16
    for (int t = 0; t < tokens; ++t) sums[t] = _mm512_setzero_ps();
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::byte* const weights = base + static_cast<std::size_t>(block) * Block::bytes;
#pragma GCC unroll 8
      for (std::size_t line = 0; line < Block::bytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(weights) + ahead_bytes + line, _MM_HINT_T0);
      // Scales lie behind their panel's blocks: those of the next panel, so that nobody waits where it
      // begins.
      _mm_prefetch(reinterpret_cast<const char*>(scales) + job.panel_bytes +
                       static_cast<std::size_t>(block) * scales_block_bytes,
                   _MM_HINT_T0);
      __m512i groups[groups_of_block];
      Block::read(weights, groups);
      const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(scales + static_cast<std::size_t>(block) * scales_block_bytes)));
#pragma GCC unroll 16
      for (int t = 0; t < tokens; ++t) {
        const std::int8_t* const values = quants + t * columns + block * block_columns;
        __m512i sum = _mm512_set1_epi32(offsets[t * blocks + block]);
#pragma GCC unroll 8
        for (int g = 0; g < groups_of_block; ++g) {
          std::int32_t four = 0;
          __builtin_memcpy(&four, values + g * 4, sizeof four);
          sum = _mm512_dpbusd_epi32(sum, groups[g], _mm512_set1_epi32(four));
        }
        sums[t] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                            _mm512_mul_ps(scale, _mm512_set1_ps(token_scales[t * blocks + block])), sums[t]);
      }
    }
#pragma GCC unroll 16
    for (int t = 0; t < tokens; ++t)
      put_panel(job, panel, token + t, {.part = {static_cast<Vector>(sums[t])}});
  }
};

}  // namespace
