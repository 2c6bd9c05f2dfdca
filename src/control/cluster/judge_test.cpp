// What a canary is judged by.
#include "control/cluster/judge.hpp"

#include <gtest/gtest.h>

namespace tutti::cluster {
namespace {

Seen seen(std::uint64_t requests, std::uint64_t failures, Duration first_token) {
  Seen seen{.requests = requests, .failures = failures};
  seen.first_tokens.add(first_token, requests - failures);
  return seen;
}

TEST(JudgeTest, NothingIsSaidBeforeThereIsEnoughToJudgeBy) {
  const Judgement few = judge(seen(5'000, 0, 100ms), seen(19, 19, 100ms), 1s);
  EXPECT_EQ(few.verdict, Verdict::none) << few.why;
  EXPECT_EQ(few.why, "has had 19 of the 100 requests that it is judged by");
  EXPECT_EQ(judge(seen(5'000, 0, 100ms), seen(99, 0, 100ms), 1s).verdict, Verdict::none);
  EXPECT_EQ(judge(seen(5'000, 0, 100ms), seen(99, 0, 100ms), 24h).verdict, Verdict::none)
      << "that it is old does not make it good";
}

TEST(JudgeTest, WhatFailsMoreThanTheOtherIsRolledBackSoon) {
  const Judgement bad = judge(seen(1'000, 0, 100ms), seen(20, 1, 100ms), 1s);
  EXPECT_EQ(bad.verdict, Verdict::roll_back);
  EXPECT_EQ(bad.why,
            "1 of 20 requests failed (5%), and 1% may: twice the 0% of the version that serves and 1% more");
  EXPECT_EQ(judge(seen(1'000, 100, 100ms), seen(100, 20, 100ms), 1s).verdict, Verdict::promote)
      << "it is no worse than what there is";
  EXPECT_EQ(judge(seen(1'000, 100, 100ms), seen(100, 22, 100ms), 1s).verdict, Verdict::roll_back);
}

TEST(JudgeTest, WhatIsSlowerIsRolledBackWhenItsTimeHasCome) {
  const Seen serving = seen(1'000, 0, 400ms);
  EXPECT_EQ(judge(serving, seen(50, 0, 2s), 1min).verdict, Verdict::none);
  EXPECT_EQ(judge(serving, seen(50, 0, 2s), 10min).verdict, Verdict::roll_back);
  const Judgement slow = judge(serving, seen(100, 0, 2s), 1s);
  EXPECT_EQ(slow.verdict, Verdict::roll_back);
  EXPECT_NE(slow.why.find("first tokens take "), std::string::npos) << slow.why;
  EXPECT_EQ(judge(serving, seen(100, 0, 400ms), 1s).verdict, Verdict::promote);
  EXPECT_EQ(judge(seen(1'000, 0, 2ms), seen(100, 0, 40ms), 1s).verdict, Verdict::promote)
      << "some milliseconds are no matter";
}

TEST(JudgeTest, WithNothingToCompareItWithItsOwnFailuresDecide) {
  EXPECT_EQ(judge({}, seen(100, 0, 10s), 1s).verdict, Verdict::promote);
  EXPECT_EQ(judge({}, seen(100, 2, 10ms), 1s).verdict, Verdict::roll_back);
}

TEST(LatenciesTest, QuantilesAreWithinAStep) {
  Latencies latencies;
  for (int at = 1; at <= 1'000; ++at) latencies.add(Duration(1ms) * at);
  EXPECT_EQ(latencies.all(), 1'000U);
  const double p95 = in_seconds(latencies.quantile(0.95));
  EXPECT_GT(p95, 0.95 / 1.42);
  EXPECT_LT(p95, 0.95 * 1.42);
  EXPECT_EQ(Latencies().quantile(0.95), Duration::zero());
  latencies.add(100h);
  EXPECT_EQ(latencies.counts.back(), 1U);
  EXPECT_EQ(latencies.since(latencies).all(), 0U);
  EXPECT_EQ(Latencies::end_of(2), 2ms);
  EXPECT_EQ(Latencies::end_of(20), 1'024ms);
}

}  // namespace
}  // namespace tutti::cluster
