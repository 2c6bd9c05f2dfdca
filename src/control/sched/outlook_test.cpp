#include "control/sched/outlook.hpp"

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

Shape gang_of(std::int32_t count) { return {.ranks = count, .gpu_share = whole_share}; }

double cost(const World& world, const JobView& job, Instant now = {}) {
  return Outlook(world.snapshot(), now).cost(job);
}

TEST(Past, KeepsTheNewestOfAKindInTheOrderOfSubmission) {
  Past past;
  for (int at = 2000; at > 0; --at) past.add(3, Instant(std::chrono::seconds(at)), at, 1);
  const auto kept = past.of(3);
  ASSERT_EQ(kept.size(), 1024U);
  EXPECT_EQ(kept.front().seconds, 977);
  EXPECT_EQ(kept.back().seconds, 2000);
  EXPECT_TRUE(past.of(2).empty());
  EXPECT_TRUE(past.of(1000).empty());
}

TEST(Past, ForgetsTheOldestOfManyKinds) {
  Past past;
  for (std::uint32_t at = 0; at < 300'000; ++at)
    past.add(at % 1000, Instant(std::chrono::seconds(at)), at, 1);
  std::size_t kept = 0;
  for (std::uint32_t kind = 0; kind < 1000; ++kind) kept += past.of(kind).size();
  EXPECT_LE(kept, std::size_t{1} << 18);
  EXPECT_EQ(past.of(999).back().seconds, 299'999);
}

TEST(Past, SpreadsWhatEndedLately) {
  Past past;
  EXPECT_TRUE(past.of_all().empty());
  past.add(0, {}, 10, 4);
  EXPECT_GT(past.of_all().front(), 40) << "four devices weigh more than four times as much as one";
  for (int at = 0; at < 1000; ++at) past.add(0, {}, at % 120, 1);
  const auto all = past.of_all();
  ASSERT_EQ(all.size(), 12U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(all.front(), 5);
  EXPECT_EQ(all.back(), 115);
}

TEST(Outlook, NothingIsKnownOfTheNew) {
  World world({node("a", 8)});
  const JobView& small = world.add(1, gang_of(1));
  const JobView& large = world.add(2, gang_of(8));
  EXPECT_DOUBLE_EQ(cost(world, small), cost(world, large));
  for (int job = 0; job < 20; ++job) world.past.add(9, {}, 100.0 * (job + 1), 2);
  EXPECT_NEAR(cost(world, small), cost(world, large), 1e-6) << "nor does what others took make a difference";
}

TEST(Outlook, WhatItsKindTookIsExpected) {
  World world({node("a", 8)});
  JobView& quick = world.add(1, gang_of(1));
  JobView& slow = world.add(2, gang_of(1));
  JobView& unknown = world.add(3, gang_of(1));
  quick.kind = 1, slow.kind = 2, unknown.kind = 3;
  for (int job = 0; job < 5; ++job) {
    world.past.add(1, {}, 60, 1);
    world.past.add(2, {}, 36'000, 1);
  }
  EXPECT_NEAR(cost(world, quick), 60, 5);
  EXPECT_GT(cost(world, slow), 30 * cost(world, quick));
  EXPECT_LT(cost(world, quick), cost(world, unknown));
  EXPECT_LT(cost(world, unknown), cost(world, slow));
}

TEST(Outlook, TheNearestInSubmissionTellTheMost) {
  World world({node("a", 8)});
  JobView& monday = world.add(1, gang_of(1), 0, Instant(0s));
  JobView& friday = world.add(2, gang_of(1), 0, Instant(96h));
  for (int job = 0; job < 5; ++job) {
    world.past.add(0, Instant(1s), 60, 1);
    world.past.add(0, Instant(96h), 36'000, 1);
  }
  EXPECT_LT(10 * cost(world, monday), cost(world, friday));
}

TEST(Outlook, ASiblingThatRunsOnSaysThatTheyAreLong) {
  World world({node("a", 8)});
  JobView& first = world.run(1, gang_of(1), Instant(0s));
  const JobView& second = world.add(2, gang_of(1), 0, Instant(0s));
  const JobView& other = world.add(3, gang_of(2), 0, Instant(0s));
  EXPECT_DOUBLE_EQ(cost(world, second), cost(world, other));
  EXPECT_GT(cost(world, second, Instant(10h)), 5 * cost(world, other, Instant(10h)));
  first.kind = 9;
  EXPECT_DOUBLE_EQ(cost(world, second, Instant(10h)), cost(world, other, Instant(10h)));
}

TEST(Outlook, WhatHasOutlivedItsKindIsExpectedToRunOn) {
  World world({node("a", 8)});
  const JobView& job = world.run(1, gang_of(1), Instant(0s));
  for (int ended = 0; ended < 5; ++ended) world.past.add(0, {}, 3600, 1);
  EXPECT_LT(cost(world, job, Instant(50min)), cost(world, job)) << "it is nearly over";
  EXPECT_GT(cost(world, job, Instant(2h)), 7200 - 1);
}

TEST(Outlook, NobodyIsOverLaterThanItsLimit) {
  World world({node("a", 8)});
  JobView& job = world.add(1, gang_of(1));
  for (int ended = 0; ended < 5; ++ended) world.past.add(0, {}, 36'000, 1);
  const double without = cost(world, job);
  job.time_limit = 10min;
  EXPECT_LT(cost(world, job), without / 10);
  EXPECT_NEAR(cost(world, job), 600, 1);
  job.served = 590;
  EXPECT_NEAR(cost(world, job), 600, 1) << "each attempt has all of it";
  job.grace = 24h;
  EXPECT_GT(cost(world, job), without / 2) << "who may take a day to end is not over soon";
}

}  // namespace
}  // namespace tutti::sched
