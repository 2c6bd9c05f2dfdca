#include "base/hash/kernels.hpp"

namespace tutti::hashing {
namespace {

constexpr std::size_t last_secret_offset = 7;  // how far before the end of the secret's last 64 bytes

TakeStripes choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return take_stripes_avx512();
  if (__builtin_cpu_supports("avx2")) return take_stripes_avx2();
#endif
  return take_stripes_plain();
}

}  // namespace

void take_stripes(Sums& sums, const std::byte* input, std::size_t stripes, const std::byte* secret) {
  static const TakeStripes chosen = choose();
  chosen(sums, input, stripes, secret);
}

void take_last_stripe(Sums& sums, const std::byte* input, const std::byte* secret) {
  sums.stripes_in_block = 0;  // as the first of a block that is never scrambled
  take_stripes(sums, input, 1, secret + secret_bytes - stripe_bytes - last_secret_offset);
}

}  // namespace tutti::hashing
