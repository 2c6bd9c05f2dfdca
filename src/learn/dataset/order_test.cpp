#include "learn/dataset/order.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::dataset {
namespace {

std::vector<std::uint64_t> epoch_of(const Order& order, std::uint64_t epoch) {
  std::vector<std::uint64_t> samples(order.samples);
  for (std::uint64_t at = 0; at < order.samples; ++at) samples[at] = order.sample(epoch * order.samples + at);
  return samples;
}

TEST(Order, EveryEpochIsAPermutation) {
  for (const std::uint64_t samples : {1U, 2U, 3U, 4U, 5U, 10U, 1000U, 65536U, 65537U}) {
    std::vector<std::uint64_t> all(samples);
    std::iota(all.begin(), all.end(), 0);
    for (const std::uint64_t epoch : {0U, 1U, 7U}) {
      auto drawn = epoch_of({.seed = 42, .samples = samples}, epoch);
      std::sort(drawn.begin(), drawn.end());
      EXPECT_EQ(drawn, all) << samples << " samples, epoch " << epoch;
    }
  }
}

TEST(Order, EpochsAndSeedsDiffer) {
  const Order order{.seed = 1, .samples = 1000};
  EXPECT_NE(epoch_of(order, 0), epoch_of(order, 1));
  EXPECT_NE(epoch_of(order, 0), epoch_of({.seed = 2, .samples = 1000}, 0));
  EXPECT_EQ(epoch_of(order, 3), epoch_of(order, 3));
}

// Neighbours are torn apart: the mean distance of two random samples is a third of all.
TEST(Order, SpreadsNeighbours) {
  const auto drawn = epoch_of({.seed = 5, .samples = 10'000}, 0);
  double distance = 0;
  for (std::size_t at = 1; at < drawn.size(); ++at)
    distance += std::abs(static_cast<double>(drawn[at]) - static_cast<double>(drawn[at - 1]));
  EXPECT_NEAR(distance / 9'999, 3'333, 100);
}

// A run that goes on after an update of tutti must see the same samples.
TEST(Order, IsTheSameForEver) {
  const Order order{.seed = 7, .samples = 1000};
  std::vector<std::uint64_t> drawn;
  for (const std::uint64_t index : {0U, 1U, 2U, 3U, 1000U, 123'456U}) drawn.push_back(order.sample(index));
  EXPECT_EQ(drawn, (std::vector<std::uint64_t>{977, 476, 228, 608, 842, 797}));
  const Order large{.seed = 7, .samples = std::uint64_t{1} << 40U};
  EXPECT_EQ(large.sample(12'345), 336'269'702'282U);
}

}  // namespace
}  // namespace tutti::dataset
