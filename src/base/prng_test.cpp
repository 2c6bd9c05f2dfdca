#include "base/prng.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Prng, OneSeedOneSequence) {
  Prng a(42);
  Prng b(42);
  Prng other(43);
  for (int draw = 0; draw < 1000; ++draw) ASSERT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), other.next());
}

// Recorded values: a change here changes every recorded history and every simulated result.
TEST(Prng, SequenceIsFixedForever) {
  Prng prng(0);
  EXPECT_EQ(prng.next(), 0x53175d61490b23dfU);
  EXPECT_EQ(prng.next(), 0x61da6f3dc380d507U);
  EXPECT_EQ(prng.next(), 0x5c0fdf91ec9a7bfcU);
  EXPECT_EQ(mixed(0), 0xe220a8397b1dcdafU);  // the first draw of splitmix64 from 0
}

TEST(Prng, BoundedDrawsStayInBoundsAndReachThem) {
  Prng prng(1);
  std::vector<int> seen(6);
  for (int draw = 0; draw < 60'000; ++draw) ++seen[prng.below(6)];
  for (const int count : seen) EXPECT_NEAR(count, 10'000, 500);
  for (int draw = 0; draw < 1000; ++draw) {
    const auto value = prng.between(-2, 2);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 2);
  }
  EXPECT_EQ(prng.below(1), 0U);
  EXPECT_EQ(prng.between(7, 7), 7);
  static_cast<void>(
      prng.between(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()));
}

TEST(Prng, UnitChanceAndExponential) {
  Prng prng(2);
  double sum = 0;
  double gaps = 0;
  int heads = 0;
  for (int draw = 0; draw < 100'000; ++draw) {
    const double value = prng.unit();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    heads += prng.chance(0.25) ? 1 : 0;
    gaps += prng.exponential(3);
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.01);
  EXPECT_NEAR(heads, 25'000, 500);
  EXPECT_NEAR(gaps / 100'000, 3, 0.05);
  EXPECT_FALSE(prng.chance(0));
  EXPECT_TRUE(prng.chance(1));
}

TEST(Prng, ShufflePermutes) {
  std::vector<int> items(100);
  std::iota(items.begin(), items.end(), 0);
  const auto ordered = items;
  Prng(3).shuffle(std::span(items));
  EXPECT_NE(items, ordered);
  std::sort(items.begin(), items.end());
  EXPECT_EQ(items, ordered);
}

TEST(Prng, ForkIsIndependentOfLaterDraws) {
  Prng parent(4);
  Prng child = parent.fork();
  Prng again(4);
  Prng same_child = again.fork();
  static_cast<void>(again.next());
  EXPECT_EQ(child.next(), same_child.next());
}

TEST(PrngDeathTest, NothingIsBelowZero) { EXPECT_DEATH(static_cast<void>(Prng(5).below(0)), "bound > 0"); }

}  // namespace
}  // namespace tutti
