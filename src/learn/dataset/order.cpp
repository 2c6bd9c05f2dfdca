// A Feistel network permutes the numbers of 2h bits: it cuts a number into halves and mixes each into the
// other, round by round, which can be undone and so never gives one result twice. A result that is no sample
// is permuted again until it is one; with at most four times as many numbers as samples that takes a few
// steps.
#include "learn/dataset/order.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "base/prng.hpp"

namespace tutti::dataset {
namespace {

constexpr unsigned rounds = 6;

struct Network {
  std::uint64_t key;
  unsigned half_bits;

  std::uint64_t permuted(std::uint64_t number) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
    std::uint64_t left = number >> half_bits;
    std::uint64_t right = number & mask;
    for (unsigned round = 0; round < rounds; ++round) {
      const std::uint64_t next = left ^ (mixed(right ^ mixed(key + round)) & mask);
      left = right;
      right = next;
    }
    return left << half_bits | right;
  }
};

}  // namespace

std::uint64_t Order::sample(std::uint64_t index) const {
  TUTTI_CHECK(samples > 0);
  const std::uint64_t epoch = index / samples;
  const auto bits = static_cast<unsigned>(std::bit_width(samples - 1));
  const Network network{mixed(mixed(seed) ^ epoch), std::max(1U, (bits + 1) / 2)};
  std::uint64_t number = index % samples;
  do {
    number = network.permuted(number);
  } while (number >= samples);
  return number;
}

}  // namespace tutti::dataset
