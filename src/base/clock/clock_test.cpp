#include "base/clock/clock.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr Instant noon(std::chrono::hours(24 * 365 * 50));

TEST(CalmDate, AJumpIsBelievedWhenItHasLasted) {
  CalmDate date;
  EXPECT_EQ(date.see(noon, 5s), noon);
  EXPECT_EQ(date.see(noon + 10s, 15s), noon + 10s);
  EXPECT_EQ(date.see(noon + 40 * 24h, 20s), noon + 15s) << "it goes on as before";
  EXPECT_EQ(date.see(noon + 30s, 35s), noon + 30s) << "and it was right";
  for (Duration steady = 40s; steady < 1h; steady += 10min)
    EXPECT_EQ(date.see(noon + 24h + steady, steady), noon - 5s + steady);
  EXPECT_EQ(date.see(noon + 24h + 2h, 2h), noon + 24h + 2h);
}

// What is used while it is set back is dated so: as old as that it would be removed at once.
TEST(CalmDate, IsNeverAheadOfTheClock) {
  CalmDate date;
  date.see(noon, 0s);
  for (Duration steady = 40s; steady < 1h; steady += 10min)
    EXPECT_EQ(date.see(noon - 24h + steady, steady), noon - 24h + steady);
  EXPECT_EQ(date.see(noon + 55min, 55min), noon + 55min) << "it was wrong";
  EXPECT_EQ(date.see(noon + 24h + 1h, 1h), noon + 1h) << "what was right before still is";
}

TEST(CalmDate, AClockThatIsSetBitByBitIsFollowed) {
  CalmDate date;
  Duration wrong{};
  for (Duration steady = 1s; steady < 1h; steady += 1min, wrong += 10s)
    EXPECT_EQ(date.see(noon + steady + wrong, steady), noon + steady + wrong);
}

TEST(CalmDate, ADateThatJumpsAboutIsNotBelieved) {
  CalmDate date;
  date.see(noon, 0s);
  for (int hour = 1; hour < 20; ++hour)
    EXPECT_EQ(date.see(noon + hour * 100h, hour * 1h), noon + hour * 1h) << "another one each time";
}

}  // namespace
}  // namespace tutti
