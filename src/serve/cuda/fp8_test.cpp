// The codes of fp8 beside CUDA's own, where its headers are.
#include <gtest/gtest.h>

#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>

#include <bit>
#include <cmath>

#include "serve/cuda/kernels/fp8.hpp"

namespace tutti::serve::cuda {
namespace {

TEST(Fp8, IsThatOfCuda) {
  for (unsigned code = 0; code < 256; ++code) {
    const __half half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3));
    const float theirs = __half2float(half);
    const float ours = fp8_to_float(static_cast<std::uint8_t>(code));
    if (std::isnan(theirs)) {
      EXPECT_TRUE(std::isnan(ours)) << code;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(ours), std::bit_cast<std::uint32_t>(theirs)) << code;
    }
  }
  for (std::uint32_t bits = 0; bits < 0x7f800000U; bits += 977) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const auto number = std::bit_cast<float>(bits | sign);
      ASSERT_EQ(fp8_from_float(number), __nv_cvt_float_to_fp8(number, __NV_SATFINITE, __NV_E4M3)) << number;
    }
  }
}

}  // namespace
}  // namespace tutti::serve::cuda
#endif
