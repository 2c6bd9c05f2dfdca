// What every CPU can do: the compiler's own vectors of four, and products of quantised numbers one by one.
#include "serve/cpu/kernel_attention.hpp"
#include "serve/cpu/kernel_blocks.hpp"
#include "serve/cpu/kernel_dense.hpp"
#include "serve/cpu/kernel_rows.hpp"

namespace {

float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  // Its exponent counts from another number on: multiplied right, which makes small ones exact too.
  const float value = float_of(magnitude << 13) * float_of(0x77800000U);
  return float_of(bits_of(value) | sign);
}

template <bool is_int4>
struct PlainTile {
  static constexpr int tokens_max = 4;

  static std::int32_t weight(const std::uint8_t* block, std::int64_t row, std::int64_t column) {
    const std::int64_t group = column / 4;
    if constexpr (!is_int4) return static_cast<std::int8_t>(block[group * 64 + row * 4 + column % 4]);
    const std::uint8_t both = block[group % 4 * 64 + row * 4 + column % 4];
    return group < 4 ? both & 0xf : both >> 4;
  }

  template <int tokens>
  static void run(const Product& job, std::int64_t panel, std::int64_t first) {
    const std::int64_t blocks = job.columns / block_columns;
    const auto* const base =
        reinterpret_cast<const std::uint8_t*>(job.panels + static_cast<std::size_t>(panel) * job.panel_bytes);
    constexpr std::size_t block_bytes = is_int4 ? int4_block_bytes : int8_block_bytes;
    const std::uint8_t* const scales = base + static_cast<std::size_t>(blocks) * block_bytes;
    for (int t = 0; t < tokens; ++t) {
      const std::int64_t token = first + t;
      float sums[panel_rows] = {};
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int8_t* const quants = job.quants + token * job.columns + block * block_columns;
        for (std::int64_t row = 0; row < panel_rows; ++row) {
          std::int32_t sum = is_int4 ? job.offsets[token * blocks + block] : 0;
          for (std::int64_t column = 0; column < block_columns; ++column) {
            sum += weight(base + static_cast<std::size_t>(block) * block_bytes, row, column) * quants[column];
          }
          std::uint16_t half = 0;
          __builtin_memcpy(&half, scales + static_cast<std::size_t>(block) * scales_block_bytes + row * 2, 2);
          sums[row] += static_cast<float>(sum) * (float_of_half(half) * job.scales[token * blocks + block]);
        }
      }
      Sixteen together;
      for (std::int64_t slice = 0; slice < slices; ++slice) together.part[slice] = load(sums + slice * lanes);
      put_panel(job, panel, token, together);
    }
  }
};

}  // namespace

namespace tutti::serve::cpu {

const Kernels& scalar_kernels() {
  static const Kernels kernels{.name = "scalar",
                               .product = {dense_product<DenseFloats>, dense_product<DenseBrains>,
                                           block_product<PlainTile<false>>, block_product<PlainTile<true>>},
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
