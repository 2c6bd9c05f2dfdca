#include "base/rate.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr Instant start(1000s);

int taken(TokenBucket& bucket, Instant now, int tries) {
  int count = 0;
  for (int at = 0; at < tries; ++at) count += bucket.take(now) == Duration::zero() ? 1 : 0;
  return count;
}

TEST(TokenBucket, GivesABurstAndThenTheRate) {
  TokenBucket bucket({.per_second = 10, .burst = 5}, start);
  EXPECT_EQ(taken(bucket, start, 100), 5);
  EXPECT_EQ(taken(bucket, start + 50ms, 100), 0);
  EXPECT_EQ(taken(bucket, start + 100ms, 100), 1);
  EXPECT_EQ(taken(bucket, start + 300ms, 100), 2);
  EXPECT_EQ(taken(bucket, start + 1h, 100), 5) << "no more than a burst, however long it rested";
}

TEST(TokenBucket, WhoWaitsAsLongAsItSaysGetsAToken) {
  TokenBucket bucket({.per_second = 3, .burst = 1}, start);
  Instant now = start;
  EXPECT_EQ(bucket.take(now), Duration::zero());
  for (int at = 0; at < 1000; ++at) {
    const Duration wait = bucket.take(now);
    ASSERT_GT(wait, Duration::zero());
    ASSERT_LE(wait, 334ms);
    now += wait;
    ASSERT_EQ(bucket.take(now), Duration::zero()) << at;
  }
}

TEST(TokenBucket, TimeThatGoesBackGivesNothing) {
  TokenBucket bucket({.per_second = 1, .burst = 1}, start);
  EXPECT_EQ(taken(bucket, start, 1), 1);
  EXPECT_EQ(taken(bucket, start - 1h, 10), 0);
  EXPECT_EQ(taken(bucket, start + 1s, 10), 1);
}

TEST(RateLimits, OneKeyDoesNotSpendAnothersTokens) {
  RateLimits limits({.per_second = 1, .burst = 2});
  EXPECT_EQ(limits.take("a", start), Duration::zero());
  EXPECT_EQ(limits.take("a", start), Duration::zero());
  EXPECT_GT(limits.take("a", start), Duration::zero());
  EXPECT_EQ(limits.take("b", start), Duration::zero());
}

TEST(RateLimits, KeysThatRestedAreForgottenFirst) {
  RateLimits limits({.per_second = 1, .burst = 1}, 3);
  for (const char* key : {"a", "b"}) EXPECT_EQ(limits.take(key, start), Duration::zero());
  EXPECT_EQ(limits.take("busy", start + 10s), Duration::zero());
  EXPECT_EQ(limits.take("new", start + 10s), Duration::zero());
  EXPECT_EQ(limits.keys(), 2U);
  EXPECT_GT(limits.take("busy", start + 10s), Duration::zero()) << "its bucket is still empty";
  for (int at = 0; at < 100; ++at) limits.take(std::to_string(at), start + 10s);
  EXPECT_LE(limits.keys(), 3U);
}

}  // namespace
}  // namespace tutti
