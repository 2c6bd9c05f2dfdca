#include "control/sched/growing.hpp"

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

struct GrowingTest : testing::Test {
  World world{{node("a", 8)}};
  TightestNode tightest;
  const Shape elastic{.ranks = 4, .rank_counts = {4, 2, 1}, .gpu_share = whole_share};

  // With fewer ranks than it wants.
  JobView& run_small(std::uint64_t id, Instant started) {
    JobView& job = world.run(id, gpus(1), started);
    job.shape = std::make_shared<const Shape>(elastic);
    return job;
  }
  Growth find(Instant now) {
    const Snapshot snapshot = world.snapshot();
    return find_growth(snapshot, now, snapshot.room, Shares(snapshot), tightest);
  }
};

TEST_F(GrowingTest, OneAtATimeAndNotBeforeItHasRunForAWhile) {
  JobView& fresh = run_small(1, Instant(55min));
  JobView& old = run_small(2, Instant(0s));
  run_small(3, Instant(0s));
  const Growth growth = find(Instant(1h));
  EXPECT_EQ(growth.gang, &old);
  EXPECT_EQ(growth.ranks, 4);
  EXPECT_EQ(growth.wake, fresh.started_at + grow_after);
}

TEST_F(GrowingTest, WithinTheLimitsOfItsUser) {
  run_small(1, Instant(0s));
  world.queues[0].user_limit = 3 * whole_share;
  EXPECT_EQ(find(Instant(1h)).ranks, 2);
  world.queues[0].user_limit = whole_share;
  EXPECT_EQ(find(Instant(1h)).gang, nullptr);
}

TEST_F(GrowingTest, NotWhileAnotherEnds) {
  run_small(1, Instant(0s));
  world.run(2, gpus(1)).ending = true;
  EXPECT_EQ(find(Instant(1h)).gang, nullptr);
}

TEST_F(GrowingTest, WhoTakesLongToEndHoldsUpNobody) {
  JobView& small = run_small(1, Instant(0s));
  JobView& slow = world.run(2, gpus(1));
  slow.grace = 24h;
  slow.ending = true;
  slow.ends_by = Instant(24h);
  EXPECT_EQ(find(Instant(1h)).gang, &small);
  const Growth near = find(Instant(24h - 30s));
  EXPECT_EQ(near.gang, nullptr) << "its room is free in a moment";
  EXPECT_EQ(near.wake, Instant(24h + 1min + 1ms));
  EXPECT_EQ(find(near.wake).gang, &small) << "or it is not";
}

// Both would count on the same room.
TEST_F(GrowingTest, OfThoseWhoTakeLongToEndOneAtATimeGrows) {
  JobView& first = run_small(1, Instant(0s));
  JobView& second = run_small(2, Instant(0s));
  first.grace = second.grace = 24h;
  ASSERT_EQ(find(Instant(1h)).gang, &first);
  first.ending = first.makes_way = true;
  first.ends_by = Instant(25h);
  EXPECT_EQ(find(Instant(1h)).gang, nullptr);
  first.makes_way = false;
  EXPECT_EQ(find(Instant(1h)).gang, &second) << "one that was cancelled does not come back";
  first.makes_way = true;
  JobView& quick = run_small(3, Instant(0s));
  EXPECT_EQ(find(Instant(1h)).gang, &quick);
}

// One of them has room to grow: it is found however many have none, if not at once.
TEST_F(GrowingTest, OfMoreThanCanBeTriedEachHasItsTurn) {
  std::vector<NodeView> nodes;
  for (int at = 0; at < 1000; ++at) nodes.push_back(node("n" + std::to_string(1000 + at), 1));
  nodes.push_back(node("z", 4));
  world = World(nodes);
  const Shape here{.ranks = 4, .rank_counts = {4, 1}, .nodes = 1, .gpu_share = whole_share};
  for (std::uint64_t id = 1; id <= 1001; ++id) {
    JobView& job = world.run(id, gpus(1));
    job.shape = std::make_shared<const Shape>(here);
  }
  const JobView* lucky = &world.jobs.back();
  int minutes = 0;
  Growth growth;
  for (Instant now(1h); growth.gang == nullptr && minutes < 10; now += 1min, ++minutes) {
    growth = find(now);
    EXPECT_LE(growth.wake, now + 1min);
  }
  EXPECT_EQ(growth.gang, lucky);
  EXPECT_EQ(growth.ranks, 4);
}

}  // namespace
}  // namespace tutti::sched
