#if defined(__x86_64__)

#include "serve/cpu/kernel_attention.hpp"
#include "serve/cpu/kernel_dense.hpp"
#include "serve/cpu/kernel_rows.hpp"
#include "serve/cpu/kernel_vnni.hpp"

namespace tutti::serve::cpu {

const Kernels& avx512_kernels() {
  static const Kernels kernels{
      .name = "avx512",
      .product = {dense_product<DenseFloats>, dense_product<DenseBrains>,
                  block_product<Avx512Tile<Int8Block>>, block_product<Avx512Tile<Int4Block>>},
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
