#include "base/prng.hpp"

#include <bit>
#include <cmath>

#include "base/check.hpp"

namespace tutti {
namespace {

struct Product {
  std::uint64_t high;
  std::uint64_t low;
};

Product multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
}

}  // namespace

Prng::Prng(std::uint64_t seed) {
  for (auto& word : state_) {
    word = mixed(seed);
    seed += golden_step;
  }
}

std::uint64_t Prng::next() {
  auto& s = state_;
  const std::uint64_t result = std::rotl(s[0] + s[3], 23) + s[0];
  const std::uint64_t shifted = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= shifted;
  s[3] = std::rotl(s[3], 45);
  return result;
}

// Lemire's method: the high half of a product is uniform once the few biased low halves are drawn again.
std::uint64_t Prng::below(std::uint64_t bound) {
  TUTTI_CHECK(bound > 0);
  Product product = multiply(next(), bound);
  if (product.low < bound) {
    const std::uint64_t biased = (0 - bound) % bound;
    while (product.low < biased) product = multiply(next(), bound);
  }
  return product.high;
}

std::int64_t Prng::between(std::int64_t low, std::int64_t high) {
  TUTTI_CHECK(low <= high);
  const std::uint64_t width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  const std::uint64_t offset = width == 0 ? next() : below(width);  // 0: the whole range of 64 bits
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
}

double Prng::unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

double Prng::exponential(double mean) { return -mean * std::log1p(-unit()); }

}  // namespace tutti
