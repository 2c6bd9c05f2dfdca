// Products of quantised numbers with the matrix unit of AMX, sixteen tokens at a time; everything else is
// AVX-512. A block of a panel lies in memory as the unit reads it. What it adds up is whole numbers, and
// scales are applied as the others do it: the sums are the same, bit by bit.
#if defined(__x86_64__)

#include <immintrin.h>

#include "serve/cpu/kernel_blocks.hpp"
#include "serve/cpu/kernel_vnni.hpp"

namespace {

constexpr int unit_tokens = 16;
// Of the tiles in use: 0 is for sums, 1 for tokens, 2 for weights. The instructions want the numbers as they
// are.
struct alignas(64) TileSizes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 32, 64};
  std::uint8_t rows[16] = {16, 16, 8};
};

// A block's weights with their signs, as they lie in memory or unpacked into `room`.
inline const std::byte* signed_block(const std::byte* block, std::byte* /*room*/, Int8Block) { return block; }
inline const std::byte* signed_block(const std::byte* block, std::byte* room, Int4Block) {
  __m512i groups[groups_of_block];
  Int4Block::read(block, groups);
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(int4_zero));
  for (std::int64_t g = 0; g < groups_of_block; ++g)
    _mm512_store_si512(room + g * 64, _mm512_sub_epi8(groups[g], zero));
  // The compiler does not know that a tile is read from there.
  __asm__ volatile("" ::: "memory");
  return room;
}

template <class Block>
void multiply_sixteen(const Product& job, std::int64_t panel, std::int64_t token) {
  // Blocks whose sums are on their way at once.
  constexpr std::int64_t ahead_blocks = 2;
  constexpr std::int64_t rooms = 4;
  alignas(64) std::int32_t tile[rooms][unit_tokens][panel_rows];
  alignas(64) std::byte room[rooms][int8_block_bytes];
  const std::int64_t blocks = job.columns / block_columns;
  const std::byte* const base = job.panels + static_cast<std::size_t>(panel) * job.panel_bytes;
  const std::byte* const scales = base + static_cast<std::size_t>(blocks) * Block::bytes;
  const std::int8_t* const quants = job.quants + token * job.columns;
  const float* const token_scales = job.scales + token * blocks;
  __m512 sums[unit_tokens];
#pragma GCC unroll 16
  for (int t = 0; t < unit_tokens; ++t) sums[t] = _mm512_setzero_ps();
  const auto begin = [&](std::int64_t block) __attribute__((always_inline)) {
    const std::byte* const weights = base + static_cast<std::size_t>(block) * Block::bytes;
#pragma GCC unroll 8
    for (std::size_t line = 0; line < Block::bytes; line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(weights) + ahead_bytes + line, _MM_HINT_T0);
    _tile_zero(0);
    _tile_loadd(1, quants + block * block_columns, job.columns);
    _tile_loadd(2, signed_block(weights, room[block % rooms], Block()), 64);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, tile[block % rooms], 64);
  };
  const auto finish = [&](std::int64_t block) __attribute__((always_inline)) {
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(scales + static_cast<std::size_t>(block) * scales_block_bytes)));
#pragma GCC unroll 16
    for (int t = 0; t < unit_tokens; ++t) {
      sums[t] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(tile[block % rooms][t])),
                          _mm512_mul_ps(scale, _mm512_set1_ps(token_scales[t * blocks + block])), sums[t]);
    }
  };
  // What the unit stores can be read only later: meanwhile the next blocks begin.
  for (std::int64_t block = 0; block < blocks + ahead_blocks; ++block) {
    if (block < blocks) begin(block);
    if (block >= ahead_blocks) finish(block - ahead_blocks);
  }
#pragma GCC unroll 16
  for (int t = 0; t < unit_tokens; ++t)
    put_panel(job, panel, token + t, {.part = {static_cast<Vector>(sums[t])}});
}

// Sixteens of tokens go to the unit, the rest to the other kernels.
template <class Block>
void unit_product(const Product& job) {
  if (job.tokens < unit_tokens) return block_product<Avx512Tile<Block>>(job);
  const TileSizes sizes;
  _tile_loadconfig(&sizes);
  for (std::int64_t begin = 0; begin < job.tokens; begin += tokens_of_quantized_pass) {
    const std::int64_t end =
        begin + tokens_of_quantized_pass < job.tokens ? begin + tokens_of_quantized_pass : job.tokens;
    for (std::int64_t panel = 0; panel < job.panel_count; ++panel) {
      std::int64_t token = begin;
      for (; token + unit_tokens <= end; token += unit_tokens) multiply_sixteen<Block>(job, panel, token);
      block_tokens<Avx512Tile<Block>, 8>(job, panel, token, end);
      block_tokens<Avx512Tile<Block>, 4>(job, panel, token, end);
      block_tokens<Avx512Tile<Block>, 2>(job, panel, token, end);
      block_tokens<Avx512Tile<Block>, 1>(job, panel, token, end);
    }
  }
  // A thread whose tiles are in use carries them along whenever it is interrupted.
  _tile_release();
}

}  // namespace

namespace tutti::serve::cpu {

const Kernels& amx_kernels() {
  static const Kernels kernels = [] {
    Kernels made = avx512_kernels();
    made.name = "amx";
    made.product[static_cast<std::size_t>(WeightType::int8)] = unit_product<Int8Block>;
    made.product[static_cast<std::size_t>(WeightType::int4)] = unit_product<Int4Block>;
    return made;
  }();
  return kernels;
}

}  // namespace tutti::serve::cpu

#endif
