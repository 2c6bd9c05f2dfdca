#include "control/driver/linger.hpp"

#include <gtest/gtest.h>

namespace tutti::driver {
namespace {

TEST(Linger, AQuickDiskIsNotWaitedFor) {
  Linger linger;
  EXPECT_TRUE(linger.enough(0));
  linger.turned(1ms, 4, 0);
  EXPECT_TRUE(linger.enough(0));
}

TEST(Linger, OnASlowOneThoseWhoWereAnsweredShareTheNextCommit) {
  Linger linger;
  linger.turned(16ms, 2, 2);
  EXPECT_EQ(linger.time(), 4ms);
  EXPECT_FALSE(linger.enough(2));
  EXPECT_FALSE(linger.enough(3));
  EXPECT_TRUE(linger.enough(4));
  linger.turned(1s, 1, 0);
  EXPECT_EQ(linger.time(), linger_max);
}

TEST(Linger, ATurnThatAnsweredNobodyIsFollowedByTheNext) {
  Linger linger;
  linger.turned(50ms, 0, 3);
  EXPECT_TRUE(linger.enough(3));
}

}  // namespace
}  // namespace tutti::driver
