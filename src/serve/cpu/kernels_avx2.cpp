#if defined(__x86_64__)

#include <immintrin.h>

#include "serve/cpu/kernel_attention.hpp"
#include "serve/cpu/kernel_blocks.hpp"
#include "serve/cpu/kernel_dense.hpp"
#include "serve/cpu/kernel_rows.hpp"

namespace {

inline __m256i read_bytes(const std::uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline __m256i repeat_four(const std::int8_t* from) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, from, sizeof four);
  return _mm256_set1_epi32(four);
}

// A block's weights of eight rows: eight groups of four columns. Pairs of products of bytes are summed in 16
// bits, which are enough if one side keeps its sign and the other has none.
struct Int8Half {
  __m256i groups[groups_of_block];

  void read(const std::uint8_t* block, std::int64_t half) {
    for (std::int64_t g = 0; g < groups_of_block; ++g) groups[g] = read_bytes(block + g * 64 + half * 32);
  }
  __m256i multiply(const std::int8_t* quants, std::int32_t /*offset*/) const {
    __m256i sum = _mm256_setzero_si256();
    const __m256i ones = _mm256_set1_epi16(1);
    for (std::int64_t g = 0; g < groups_of_block; ++g) {
      const __m256i values = repeat_four(quants + g * 4);
      const __m256i pairs =
          _mm256_maddubs_epi16(_mm256_abs_epi8(values), _mm256_sign_epi8(groups[g], values));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
  }
};

struct Int4Half {
  __m256i groups[groups_of_block];

  void read(const std::uint8_t* block, std::int64_t half) {
    const __m256i low = _mm256_set1_epi8(0xf);
    for (std::int64_t g = 0; g < groups_of_block / 2; ++g) {
      const __m256i both = read_bytes(block + g * 64 + half * 32);
      groups[g] = _mm256_and_si256(both, low);
      groups[g + groups_of_block / 2] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    }
  }
  __m256i multiply(const std::int8_t* quants, std::int32_t offset) const {
    // 8 groups · 2 products · 15 · 127 fit into 16 bits.
    __m256i pairs = _mm256_setzero_si256();
    for (std::int64_t g = 0; g < groups_of_block; ++g)
      pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(groups[g], repeat_four(quants + g * 4)));
    return _mm256_add_epi32(_mm256_set1_epi32(offset), _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

template <class Half, std::size_t block_bytes>
struct Avx2Tile {
  static constexpr int tokens_max = 4;

  template <int tokens>
  static void run(const Product& job, std::int64_t panel, std::int64_t token) {
    const std::int64_t blocks = job.columns / block_columns;
    const auto* const base =
        reinterpret_cast<const std::uint8_t*>(job.panels + static_cast<std::size_t>(panel) * job.panel_bytes);
    const std::uint8_t* const scales = base + static_cast<std::size_t>(blocks) * block_bytes;
    __m256 sums[tokens][2] = {};
    for (std::int64_t half = 0; half < 2; ++half) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        Half weights;
        weights.read(base + static_cast<std::size_t>(block) * block_bytes, half);
        const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(
            scales + static_cast<std::size_t>(block) * scales_block_bytes + half * 16)));
        for (int t = 0; t < tokens; ++t) {
          const std::int64_t at = (token + t) * blocks + block;
          const __m256i sum = weights.multiply(job.quants + at * block_columns, job.offsets[at]);
          sums[t][half] = _mm256_fmadd_ps(
              _mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(job.scales[at])), sums[t][half]);
        }
      }
    }
    for (int t = 0; t < tokens; ++t)
      put_panel(job, panel, token + t,
                {.part = {static_cast<Vector>(sums[t][0]), static_cast<Vector>(sums[t][1])}});
  }
};

}  // namespace

namespace tutti::serve::cpu {

const Kernels& avx2_kernels() {
  static const Kernels kernels{.name = "avx2",
                               .product = {dense_product<DenseFloats>, dense_product<DenseBrains>,
                                           block_product<Avx2Tile<Int8Half, int8_block_bytes>>,
                                           block_product<Avx2Tile<Int4Half, int4_block_bytes>>},
                               .quantize = quantize,
                               .normalize_rms = normalize_rms,
                               .normalize_layer = normalize_layer,
                               .bend = bend,
                               .rotate = rotate,
                               .attend = attend,
                               .add_scaled = add_scaled};
  return kernels;
}

}  // namespace tutti::serve::cpu

#endif
