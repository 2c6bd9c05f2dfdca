#include "gate/balance/draw.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

namespace tutti::gate {
namespace {

TEST(Draw, AShareHoldsWithinOneRequestAfterAnyNumberOfThem) {
  for (std::int32_t share = 0; share <= whole_share; ++share) {
    Draw draw;
    std::int64_t taken = 0;
    for (std::int64_t requests = 1; requests <= 2'500; ++requests) {
      taken += draw.take(share) ? 1 : 0;
      ASSERT_LT(std::abs(taken * whole_share - requests * share), whole_share) << share << " of " << requests;
    }
  }
}

TEST(Draw, ItIsSpreadEvenly) {
  Draw draw;
  int since = 0;
  for (int request = 0; request < 1'000; ++request) {
    ++since;
    if (!draw.take(100)) continue;
    EXPECT_EQ(since, 10);
    since = 0;
  }
}

TEST(Draw, AnotherShareHoldsFromThenOn) {
  Draw draw;
  for (int request = 0; request < 9; ++request) EXPECT_FALSE(draw.take(100));
  int taken = 0;
  for (int request = 0; request < 100; ++request) taken += draw.take(500) ? 1 : 0;
  EXPECT_NEAR(taken, 50, 1);
  for (int request = 0; request < 100; ++request) EXPECT_FALSE(draw.take(0));
  for (int request = 0; request < 100; ++request) EXPECT_TRUE(draw.take(whole_share));
}

TEST(Draw, WhatIsNoShareIsTheNearestOne) {
  Draw draw;
  EXPECT_FALSE(draw.take(-5'000));
  EXPECT_TRUE(draw.take(5'000));
  EXPECT_FALSE(draw.take(0));
}

}  // namespace
}  // namespace tutti::gate
