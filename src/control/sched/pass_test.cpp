#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

using Ids = std::vector<std::uint64_t>;

const Shape one{.ranks = 1, .gpu_share = 1000};

TEST(Pass, PriorityThenTimeThenId) {
  World world({node("a", 1)});
  world.add(1, one, 0, Instant(2s));
  world.add(2, one, 0, Instant(1s));
  world.add(3, one, 5, Instant(3s));
  const Plan plan = world.plan();
  EXPECT_EQ(plan.revision, 7U);
  EXPECT_EQ(started(plan), Ids{3});
  EXPECT_EQ(plan.waiting->jobs.size(), 2U);
}

TEST(Pass, AnElasticGangLeavesTheRestToTheNext) {
  World world({node("a", 6)});
  const Shape elastic{.ranks = 8, .rank_counts = {8, 4}, .gpu_share = 1000};
  world.add(1, elastic);
  world.add(2, elastic);
  world.add(3, gpus(2));
  const Plan plan = world.plan();
  EXPECT_EQ(started(plan), (Ids{1, 3}));
  EXPECT_EQ(plan.starts[0].places.ranks(), 4);
  EXPECT_EQ(why(plan, 2),
            "needs at least 4 of 8 ranks of 1 GPU; 1 node takes work, 2 matching GPUs are free, 2 such ranks "
            "would fit");
}

TEST(Pass, StartsNoMoreThanItMayAndSaysThatThereIsMore) {
  World world({node("a", 8)});
  for (std::uint64_t id = 1; id <= 5; ++id) world.add(id, one);
  Snapshot snapshot = world.snapshot();
  snapshot.starts_max = 3;
  const Plan plan = schedule(snapshot, {});
  EXPECT_EQ(started(plan), (Ids{1, 2, 3}));
  EXPECT_TRUE(plan.more);
  EXPECT_EQ(why(plan, 4), "waits until those before it have been started");
  EXPECT_FALSE(world.plan().more);
}

// Whatever is asked for: no device gives more than it has, gangs are whole, and the same input gives the same
// plan.
TEST(Pass, NeverOverCommits) {
  Prng prng(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<NodeView> nodes;
    for (int at = 0; at < 6; ++at)
      nodes.push_back(node("n" + std::to_string(at), static_cast<int>(prng.below(9)), "H100", 16,
                           "s/p/r" + std::to_string(at / 2)));
    World world(nodes);
    for (std::uint64_t id = 1; id <= 20; ++id) {
      Shape shape{.ranks = static_cast<std::int32_t>(prng.between(1, 12))};
      const std::int32_t shares[] = {0, 100, 250, 500, 1000, 2000, 8000};
      shape.gpu_share = shares[prng.below(7)];
      for (auto count = shape.ranks; count > 0 && prng.chance(0.4); --count)
        shape.rank_counts.push_back(count);
      if (prng.chance(0.3)) shape.nodes = static_cast<std::int32_t>(prng.between(1, shape.ranks));
      if (prng.chance(0.3)) shape.cpus = static_cast<std::int32_t>(prng.between(1, 8));
      if (prng.chance(0.3)) shape.within = Level::rack;
      world.add(id, shape).expected = prng.chance(0.5) ? 1h : 0h;
    }
    const Plan plan = world.plan();
    Room room = world.room;
    for (const auto& start : plan.starts) {
      const Shape& shape = *world.jobs[start.job.number() - 1].shape;
      ASSERT_TRUE(runs_with(shape, static_cast<std::size_t>(start.places.ranks())));
      ASSERT_TRUE(room.fits(shape, start.places));
      room.take(shape, start.places);
    }
    ASSERT_EQ(plan.starts.size() + plan.waiting->jobs.size(), world.jobs.size());
    ASSERT_EQ(started(plan), started(world.plan()));
  }
}

// ---- promises

TEST(Pass, TheFirstThatIsBlockedIsPromisedATimeAndAPlace) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(8), Instant(0s)).expected = 2h;
  world.run(2, gpus(4), Instant(0s)).expected = 1h;
  world.add(3, gpus(16), 0, Instant(1s));
  const Plan plan = world.plan(Instant(10min));
  ASSERT_EQ(plan.promises.size(), 1U);
  EXPECT_EQ(plan.promises[0].job, JobId(3));
  EXPECT_EQ(plan.promises[0].start, Instant(2h));
}

TEST(Pass, SmallWorkRunsAroundAPromiseOnlyIfItIsOverByThen) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(8), Instant(0s)).expected = 1h;
  world.add(2, gpus(16), 0, Instant(1s));
  world.add(3, gpus(2), 0, Instant(2s)).expected = 2h;
  world.add(4, gpus(2), 0, Instant(3s)).expected = 30min;
  world.add(5, gpus(2), 0, Instant(4s));
  const Plan plan = world.plan(Instant(10min));
  EXPECT_EQ(started(plan), Ids{4}) << "3 would delay the promise, and of 5 nothing is known";
}

// Who has one small gang that lasts for months, and a large one that waits for it, does not keep the rest of
// the cluster empty meanwhile.
TEST(Pass, NoRoomIsKeptForAPromiseThatIsFarAway) {
  World world({node("a", 8), node("b", 8)});
  JobView& running = world.run(1, gpus(1), Instant(0s));
  running.expected = 300 * 24h;
  running.kind = 9;
  world.add(2, gpus(16), 0, Instant(1s));
  for (std::uint64_t id = 3; id < 10; ++id) world.add(id, gpus(16), 0, Instant(1s));
  world.add(10, gpus(8), 0, Instant(2s));
  const Plan plan = world.plan(Instant(1h));
  EXPECT_EQ(started(plan), Ids{10}) << "nothing is known of how long it runs";
  EXPECT_TRUE(plan.promises.empty());
  EXPECT_EQ(
      why(plan, 2),
      "expects 2 nodes from a to b at 1970-10-28T00:00:00.000Z, when running gangs are expected to have "
      "ended; until a day before that others use the room");
}

TEST(Pass, RoomIsKeptOnceAPromiseIsNear) {
  World world({node("a", 8), node("b", 8)});
  JobView& running = world.run(1, gpus(1), Instant(0s));
  running.expected = 300 * 24h;
  running.kind = 9;
  world.add(2, gpus(16), 0, Instant(1s));
  world.add(3, gpus(8), 0, Instant(2s));
  EXPECT_TRUE(started(world.plan(Instant(299 * 24h))).empty());
}

TEST(Pass, WhatIsNotPromisedIsFreeForAll) {
  World world({node("a", 8), node("b", 8), node("c", 4)});
  world.run(1, gpus(8), Instant(0s)).expected = 1h;
  world.add(2, gpus(16), 0, Instant(1s)).expected = 1h;
  world.add(3, gpus(4), 0, Instant(2s)).expected = 100h;
  EXPECT_EQ(started(world.plan(Instant(10min))), Ids{3}) << "it runs on c, which is not promised";
}

TEST(Pass, WhatIsPromisedIsNotClaimedByWhatMustGoAroundIt) {
  World world({node("a", 8), node("b", 8)});
  JobView& running = world.run(1, gpus(8), Instant(0s));
  running.expected = 5h;
  running.kind = 9;  // tells nothing about the others
  world.add(2, gpus(16), 0, Instant(1s));
  world.add(3, gpus(8), 0, Instant(2s)).expected = 8h;
  world.add(4, gpus(8), 0, Instant(3s)).expected = 1h;
  const Plan plan = world.plan(Instant(1h));
  EXPECT_EQ(started(plan), Ids{4}) << "3 would not be over, and nothing is ending that it could wait for";
  EXPECT_EQ(
      why(plan, 3),
      "the room for it is promised to job 2 at 1970-01-01T05:00:00.000Z, and it is not known to be over by "
      "then");
}

// ---- queues

TEST(Pass, QueuesGetTheirGuaranteesFirst) {
  World world({node("a", 4)});
  world.queues = {{.name = "a"}, {.name = "b", .guarantee = 2000}};
  world.users = {{.name = "ada", .queue = 0}, {.name = "bob", .queue = 1}};
  for (std::uint64_t id = 1; id <= 4; ++id) world.add(id, one, 0, Instant(1s));
  for (std::uint64_t id = 5; id <= 8; ++id) {
    JobView& job = world.add(id, one, 0, Instant(2s));
    job.queue = 1, job.user = 1;
  }
  const auto ids = started(world.plan());
  EXPECT_EQ(std::set(ids.begin(), ids.end()), (std::set<std::uint64_t>{1, 2, 5, 6}));
}

TEST(Pass, WeightsShareWhatIsNotGuaranteed) {
  World world({node("a", 8)});
  world.queues = {{.name = "a", .weight = 3}, {.name = "b", .weight = 1}};
  world.users = {{.name = "ada", .queue = 0}, {.name = "bob", .queue = 1}};
  for (std::uint64_t id = 1; id <= 16; ++id) {
    JobView& job = world.add(id, one);
    job.queue = job.user = static_cast<std::int32_t>(id % 2);
  }
  int of_a = 0;
  for (const std::uint64_t id : started(world.plan())) of_a += id % 2 == 0 ? 1 : 0;
  EXPECT_EQ(of_a, 6);
}

TEST(Pass, WhatWasUsedLatelyCounts) {
  World world({node("a", 1)});
  world.queues = {{.name = "a", .past = 4000}, {.name = "b"}};
  world.users = {{.name = "ada", .queue = 0}, {.name = "bob", .queue = 1}};
  world.add(1, one, 0, Instant(1s));
  JobView& job = world.add(2, one, 0, Instant(2s));
  job.queue = job.user = 1;
  EXPECT_EQ(started(world.plan()), Ids{2});
}

TEST(Pass, ALimitHoldsForTheQueuesBelow) {
  World world({node("a", 8)});
  world.queues = {{.name = "r", .limit = 3000}, {.name = "r/v", .parent = 0}, {.name = "r/w", .parent = 0}};
  world.users = {{.name = "ada", .queue = 1}, {.name = "bob", .queue = 2}};
  for (std::uint64_t id = 1; id <= 6; ++id) {
    JobView& job = world.add(id, one);
    job.user = static_cast<std::int32_t>(id % 2);
    job.queue = job.user + 1;
  }
  const Plan plan = world.plan();
  EXPECT_EQ(plan.starts.size(), 3U);
  EXPECT_EQ(why(plan, 6), "needs 1 GPU; queue r uses 3 of at most 3");
}

TEST(Pass, AUserHasALimitInAQueue) {
  World world({node("a", 8)});
  world.queues = {{.name = "default", .user_limit = 2000}};
  world.users = {{.name = "ada"}, {.name = "bob"}};
  for (std::uint64_t id = 1; id <= 4; ++id) world.add(id, one);
  world.add(5, one).user = 1;
  const Plan plan = world.plan();
  EXPECT_EQ(plan.starts.size(), 3U);
  EXPECT_EQ(why(plan, 3), "needs 1 GPU; user ada uses 2 of at most 2 in queue default");
}

// ---- making way

TEST(Pass, AHigherPriorityHasWholeGangsMakeWay) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(8), Instant(0s), 0);
  world.run(2, gpus(8), Instant(0s), 5);
  world.add(3, gpus(4), 5, Instant(1s));
  const Plan plan = world.plan(Instant(60s));
  EXPECT_EQ(stopped(plan), Ids{1}) << "2 is as important";
  EXPECT_EQ(why(plan, 3), "starts when job 1 has made way");
}

TEST(Pass, TheGangThatLosesTheLeastMakesWay) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(8), Instant(0s));
  world.run(2, gpus(8), Instant(0s)).saved_at = Instant(59min);
  world.add(3, gpus(8), 1, Instant(1s));
  EXPECT_EQ(stopped(world.plan(Instant(1h))), Ids{2});
}

TEST(Pass, NoMoreMakeWayThanNeeded) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(2), Instant(10min));
  world.run(2, gpus(6), Instant(10min));
  world.run(3, gpus(8), Instant(0s));
  world.add(4, gpus(8), 1, Instant(1s));
  EXPECT_EQ(stopped(world.plan(Instant(11min))).size(), 2U) << "1 and 2 lose less than 3 does";
  World other({node("a", 8), node("b", 8)});
  other.run(1, gpus(2), Instant(10min));
  other.run(2, gpus(8), Instant(0s)).saved_at = Instant(10min);
  other.run(3, gpus(6), Instant(0s));
  other.add(4, gpus(8), 1, Instant(1s));
  EXPECT_EQ(stopped(other.plan(Instant(11min))), Ids{2}) << "stopping 1 would not have helped";
}

TEST(Pass, WhatEndsAlreadyIsWaitedFor) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(8)).ending = true;
  world.run(2, gpus(8));
  world.add(3, gpus(8), 1, Instant(1s));
  const Plan plan = world.plan(Instant(60s));
  EXPECT_TRUE(plan.stops.empty());
  EXPECT_EQ(why(plan, 3),
            "starts when job 1, which is ending, has ended, at 1970-01-01T00:01:00.000Z at the latest");
}

TEST(Pass, WhatEndsAlreadyIsWaitedForUntilItsGracePeriodIsOverAndNoLonger) {
  World world({node("a", 8), node("b", 8)});
  for (const std::uint64_t id : {1U, 2U}) {
    JobView& gang = world.run(id, gpus(8));
    gang.ending = true;
    gang.ends_by = Instant(90s);
  }
  world.add(3, gpus(8), 1, Instant(1s));
  for (const Duration now : {Duration(60s), Duration(80s)}) {
    const Plan plan = world.plan(Instant(now));
    EXPECT_EQ(why(plan, 3),
              "starts when gangs that are ending have ended, at 1970-01-01T00:01:30.000Z at the latest");
    ASSERT_EQ(plan.soon.size(), 1U);
    EXPECT_EQ(plan.soon[0].start, Instant(90s)) << "which does not move with the clock";
  }
}

TEST(Pass, RoomThatIsBeingMadeIsNotGivenAway) {
  World world({node("a", 8)});
  world.run(1, gpus(4)).ending = true;
  world.add(2, gpus(8), 1, Instant(1s));
  world.add(3, gpus(4), 0, Instant(2s));
  const Plan plan = world.plan(Instant(60s));
  EXPECT_TRUE(plan.starts.empty()) << "the four that are free belong to 2";
}

// ---- making way, by those who take a day to end

// One of them on three nodes, and a gang that needs all of these.
struct LongGraceTest : testing::Test {
  World world{{node("a", 8), node("b", 8), node("c", 8)}};
  JobView& slow = world.run(1, gpus(1), Instant(0s), -1);
  JobView& large = world.add(2, gpus(24), 1, Instant(1min));

  LongGraceTest() {
    slow.grace = 24h;
    large.expected = 1min;
  }
  JobView& add_small(std::uint64_t id, Duration expected) {
    JobView& small = world.add(id, one, 0, Instant(2min));
    small.expected = expected;
    return small;
  }
  void tell_slow(Instant when) {
    slow.ending = true;
    slow.ends_by = when + slow.grace;
  }
};

TEST_F(LongGraceTest, TheRoomIsUsedUntilTheyHaveEndedByWhoeverIsOverByThen) {
  add_small(3, 6s);
  add_small(4, 48h);
  add_small(5, 0s);
  const auto expect = [](const Plan& plan) {
    EXPECT_EQ(started(plan), Ids{3});
    ASSERT_EQ(plan.promises.size(), 1U);
    EXPECT_EQ(plan.promises[0].job, JobId(2));
    EXPECT_EQ(plan.promises[0].start, Instant(24h + 5min));
    EXPECT_EQ(
        why(plan, 2),
        "is promised 3 nodes from a to c at 1970-01-02T00:05:00.000Z at the latest, when job 1, which is "
        "ending, has ended");
    for (const std::uint64_t id : {4U, 5U})
      EXPECT_EQ(why(plan, id),
                "the room for it is promised to job 2 at 1970-01-02T00:05:00.000Z, and it is not known to be "
                "over by then");
  };
  const Plan first = world.plan(Instant(5min));
  expect(first);
  EXPECT_EQ(stopped(first), Ids{1});
  tell_slow(Instant(5min));
  const Plan second = world.plan(Instant(20h));
  expect(second);
  EXPECT_TRUE(stopped(second).empty()) << "it was told";
}

TEST_F(LongGraceTest, ThePromiseIsKept) {
  add_small(3, 10min);
  tell_slow(Instant(5min));
  EXPECT_EQ(started(world.plan(Instant(24h - 6min))), Ids{3});
  EXPECT_TRUE(started(world.plan(Instant(24h - 4min))).empty()) << "it would not be over";
  const Plan soon = world.plan(Instant(24h + 4min + 30s));
  EXPECT_TRUE(soon.starts.empty());
  ASSERT_EQ(soon.soon.size(), 1U) << "now the room is kept";
  EXPECT_EQ(soon.soon[0].start, Instant(24h + 5min));
  world.room.give(*slow.shape, slow.places);
  world.jobs.pop_front();
  EXPECT_EQ(started(world.plan(Instant(24h + 5min))), Ids{2});
}

TEST_F(LongGraceTest, OthersWhoAreNeededTooRunOnMeanwhile) {
  JobView& quick = world.run(3, gpus(8), Instant(0s), -1);
  quick.grace = 10s;
  const Plan first = world.plan(Instant(5min));
  EXPECT_EQ(stopped(first), Ids{1}) << "what 3 leaves would be empty for a day";
  ASSERT_EQ(first.promises.size(), 1U);
  tell_slow(Instant(5min));
  const Plan second = world.plan(Instant(10h));
  EXPECT_TRUE(stopped(second).empty());
  ASSERT_EQ(second.promises.size(), 1U);
  EXPECT_EQ(second.promises[0].start, Instant(24h + 5min));
  EXPECT_EQ(stopped(world.plan(Instant(24h + 4min + 55s))), Ids{3}) << "in time";
}

TEST_F(LongGraceTest, WhatEndsByItselfSoonerIsWaitedFor) {
  slow.expected = 2h;
  const Plan plan = world.plan(Instant(5min));
  EXPECT_TRUE(stopped(plan).empty());
  ASSERT_EQ(plan.promises.size(), 1U);
  EXPECT_EQ(plan.promises[0].start, Instant(2h));
}

// It is silent, or hangs where no kill reaches it: nobody keeps room empty for it.
TEST_F(LongGraceTest, OneThatDoesNotEndInTimeHoldsUpNobody) {
  slow.grace = 10s;
  tell_slow(Instant(5min));
  add_small(3, 6s);
  EXPECT_TRUE(started(world.plan(Instant(5min))).empty());
  EXPECT_EQ(started(world.plan(Instant(10min))), Ids{3});
}

TEST_F(LongGraceTest, ItIsLookedAtAgainWhenAnEndIsNearAndWhenItIsLate) {
  tell_slow(Instant(5min));
  EXPECT_EQ(world.plan(Instant(10h)).wake, Instant(24h + 4min));
  EXPECT_EQ(world.plan(Instant(24h + 4min)).wake, Instant(24h + 6min + 1ms));
  EXPECT_EQ(world.plan(Instant(24h + 6min)).wake, Instant(24h + 6min + 1ms));
  EXPECT_EQ(world.plan(Instant(24h + 7min)).wake, never);
}

TEST(Pass, WhoEndsSoonMakesWayBeforeWhoTakesLong) {
  World world({node("a", 8), node("b", 8), node("c", 8)});
  for (std::uint64_t id = 1; id <= 3; ++id) {
    JobView& gang = world.run(id, gpus(8), Instant(std::chrono::minutes(static_cast<int>(id))), -5);
    gang.grace = id == 3 ? Duration(24h) : Duration(10s);
  }
  world.add(4, gpus(8), 10, Instant(4min));
  const Plan plan = world.plan(Instant(5min));
  EXPECT_EQ(stopped(plan), Ids{2}) << "3 loses less, and takes a day for that";
  EXPECT_EQ(why(plan, 4), "starts when job 2 has made way");
  // Nor does it wait for one that was told before.
  world.jobs[2].ending = true;
  world.jobs[2].ends_by = Instant(20h);
  EXPECT_EQ(stopped(world.plan(Instant(6min))), Ids{2});
}

TEST(Pass, OfThoseWhoTakeLongTheSoonerByFarMakesWay) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(8), Instant(0s)).grace = 1h;
  world.run(2, gpus(8), Instant(4min)).grace = 24h;
  world.add(3, gpus(8), 1, Instant(4min));
  EXPECT_EQ(stopped(world.plan(Instant(5min))), Ids{1});
}

// It would be back in its room at once, and be told again, for a day.
TEST(Pass, NobodyIsToldLongBeforeTheLastOfThoseWhoAreNeededHasEnded) {
  World world({node("a", 8), node("b", 8), node("c", 8)});
  JobView& slow = world.run(1, gpus(8), Instant(0s));
  slow.grace = 24h;
  slow.ending = true;
  slow.ends_by = Instant(24h);
  world.run(2, gpus(8), Instant(0s)).grace = 10s;
  JobView& limited = world.run(3, gpus(8), Instant(0s));
  limited.grace = 5min;
  limited.expected = 1h + 5min;
  world.add(4, gpus(24), 1, Instant(1min));
  const Plan plan = world.plan(Instant(5min));
  EXPECT_TRUE(stopped(plan).empty());
  ASSERT_EQ(plan.promises.size(), 1U);
  EXPECT_EQ(plan.promises[0].start, Instant(24h));
  EXPECT_EQ(plan.wake, Instant(24h - 6min));
  EXPECT_EQ(stopped(world.plan(Instant(24h - 6min))), Ids{3}) << "in time";
}

TEST(Pass, WhatOneThatTakesLongLeavesIsEnoughForTwo) {
  World world({node("a", 8), node("b", 8)});
  for (const std::uint64_t id : {1U, 2U}) world.run(id, gpus(8), Instant(0s)).grace = 1h;
  for (const std::uint64_t id : {3U, 4U}) world.add(id, gpus(4), 1, Instant(1min));
  const Plan plan = world.plan(Instant(5min));
  EXPECT_EQ(stopped(plan), Ids{1});
  ASSERT_EQ(plan.promises.size(), 2U);
  for (const Promise& promise : plan.promises) EXPECT_EQ(promise.start, Instant(1h + 5min));
}

TEST(Pass, WhoIsQuickMakesWayBesideOneThatTakesLongWhereThatIsSooner) {
  World world({node("a", 8), node("b", 8), node("c", 8)});
  world.run(1, gpus(8), Instant(0s)).grace = 2h;
  world.run(2, gpus(8), Instant(0s)).grace = 24h;
  world.run(3, gpus(8), Instant(0s)).grace = 10s;
  world.add(4, gpus(16), 1, Instant(1min));
  const Plan plan = world.plan(Instant(5min));
  EXPECT_EQ(stopped(plan), Ids{1});
  ASSERT_EQ(plan.promises.size(), 1U);
  EXPECT_EQ(plan.promises[0].start, Instant(2h + 5min));
}

TEST(Pass, WhoTakesLongGivesBackNoMoreThanIsGuaranteedOrAllowed) {
  World world({node("a", 8)});
  world.queues = {{.name = "b"}, {.name = "a", .guarantee = 4000}};
  world.users = {{.name = "bob", .queue = 0}, {.name = "ada", .queue = 1}};
  JobView& borrower = world.run(1, gpus(4), Instant(0s));
  JobView& other = world.run(2, gpus(4), Instant(0s));
  borrower.grace = other.grace = 10min;
  for (const std::uint64_t id : {3U, 4U}) {
    JobView& job = world.add(id, gpus(4), 0, Instant(1min));
    job.queue = job.user = 1;
  }
  EXPECT_EQ(stopped(world.plan(Instant(5min))), Ids{1}) << "3 will have all that is guaranteed";
  world.queues[1].guarantee = 8000;
  EXPECT_EQ(stopped(world.plan(Instant(5min))), (Ids{1, 2}));
  world.queues[1].limit = 4000;
  EXPECT_EQ(stopped(world.plan(Instant(5min))), Ids{1}) << "3 will have all that is allowed";
  world.queues[1].guarantee = 4000;
  world.queues[1].limit = no_limit;
  borrower.ending = true;
  borrower.ends_by = Instant(15min);
  const Plan plan = world.plan(Instant(6min));
  EXPECT_TRUE(stopped(plan).empty()) << "nor when it was told";
  ASSERT_EQ(plan.promises.size(), 1U);
  EXPECT_EQ(plan.promises[0].job, JobId(3));
}

TEST(Pass, BorrowedDevicesGoBack) {
  World world({node("a", 8)});
  world.queues = {{.name = "a", .guarantee = 4000}, {.name = "b", .guarantee = 4000}};
  world.users = {{.name = "ada", .queue = 0}, {.name = "bob", .queue = 1}};
  world.run(1, gpus(4), Instant(0s));
  world.run(2, gpus(2), Instant(5s));
  world.run(3, gpus(2), Instant(0s));
  JobView& job = world.add(4, gpus(4), 0, Instant(1s));
  job.queue = job.user = 1;
  EXPECT_EQ(stopped(world.plan(Instant(60s))), (Ids{2, 3})) << "a keeps what is guaranteed to it";
  world.jobs.back().shape = std::make_shared<const Shape>(gpus(5));
  EXPECT_TRUE(stopped(world.plan(Instant(60s))).empty()) << "b has no claim to five";
}

TEST(Pass, WhatHasHadMuchYieldsToWhatHasHadLittle) {
  World world({node("a", 8)});
  JobView& old = world.run(1, gpus(8), Instant(0s));
  world.add(2, gpus(8), 0, Instant(1000h));
  EXPECT_TRUE(stopped(world.plan(Instant(1000h))).empty()) << "1 does not say that it can yield";
  old.yields = true;
  EXPECT_EQ(stopped(world.plan(Instant(1000h))), Ids{1});
  EXPECT_TRUE(stopped(world.plan(Instant(1min))).empty()) << "1 has not had much yet";
  EXPECT_GT(world.plan(Instant(1min)).wake, Instant(1min));
  EXPECT_LT(world.plan(Instant(1min)).wake, Instant(1000h));
}

// A small gang on each node, and one that needs a whole node.
TEST(Pass, SmallGangsMoveSoThatALargeOneHasRoomInOnePiece) {
  World world({node("a", 8), node("b", 8)});
  JobView& first = world.run(1, gpus(2), Instant(0s));
  world.room.set_open(
      *world.room.find(nodes_of(world.room.expand(*first.shape, first.places)).begin()->c_str()), false);
  JobView& second = world.run(2, gpus(3), Instant(0s));
  for (const char* name : {"a", "b"}) world.room.set_open(*world.room.find(name), true);
  ASSERT_NE(first.places.slots.front().node, second.places.slots.front().node);
  const JobView& large = world.add(3, {.ranks = 1, .gpu_share = 8 * whole_share}, 0, Instant(1min));
  for (int job = 0; job < 5; ++job) world.past.add(large.kind, large.submitted_at, 1e6, 8);
  EXPECT_TRUE(stopped(world.plan(Instant(70min))).empty()) << "none says that it can be stopped";
  first.yields = second.yields = true;
  EXPECT_TRUE(stopped(world.plan(Instant(40min))).empty()) << "they have not run for long";
  const Plan plan = world.plan(Instant(70min));
  EXPECT_EQ(stopped(plan), Ids{1}) << "the one with the fewest devices";
  EXPECT_EQ(plan.stops.front().why, "moves, so that there is room for job 3");
  EXPECT_EQ(why(plan, 3), "starts when job 1 has moved");
  first.priority = second.priority = 1;
  EXPECT_TRUE(stopped(world.plan(Instant(70min))).empty()) << "they are more important";
  first.priority = second.priority = 0;
  world.run(4, gpus(4), Instant(69min));
  EXPECT_TRUE(stopped(world.plan(Instant(70min))).empty()) << "there is no room elsewhere for the first";
}

// The other's gang would have its turn first when it is back in the queue, and take its place again.
TEST(Pass, NobodyDisplacesTheGangOfAUserWhoHasLess) {
  World world({node("a", 8), node("b", 8)});
  world.users = {{.name = "ada"}, {.name = "bob"}};
  JobView& of_ada = world.run(1, gpus(8), Instant(0s));
  of_ada.yields = true;
  JobView& of_bob = world.add(3, {.ranks = 1, .gpu_share = whole_share}, 0, Instant(99h));
  of_bob.user = 1;
  JobView& fixed = world.run(2, gpus(8), Instant(0s));
  EXPECT_EQ(stopped(world.plan(Instant(100h))), Ids{1}) << "bob has nothing";
  fixed.user = 1;
  world.users[0].in_use = world.users[1].in_use = 8 * whole_share;
  EXPECT_TRUE(stopped(world.plan(Instant(100h))).empty()) << "without it ada would have less than bob";
}

TEST(Pass, OneThatCannotDisplaceSaysNothingAboutAnotherUser) {
  World world({node("a", 8)});
  world.users = {{.name = "ada"}, {.name = "bob", .past = 1}, {.name = "carol", .past = 1e6}};
  JobView& of_carol = world.run(1, gpus(8), Instant(0s));
  of_carol.yields = true;
  of_carol.user = 2;
  of_carol.served = 1e9;
  world.add(2, gpus(8), 0, Instant(0s)).served = 1e9;
  world.add(3, gpus(8), 0, Instant(1s)).user = 1;
  EXPECT_EQ(stopped(world.plan(Instant(1001h))), Ids{1}) << "for bob, although ada comes before him";
}

TEST(Pass, EqualsNeverDisplaceEachOther) {
  World world({node("a", 8)});
  world.run(1, gpus(8), Instant(1000h)).yields = true;
  world.jobs[0].served = 1e9;
  JobView& waiting = world.add(2, gpus(8), 0, Instant(0s));
  waiting.yields = true;
  waiting.served = 1e9;
  EXPECT_TRUE(stopped(world.plan(Instant(1001h))).empty());
}

// ---- growing

TEST(Pass, AnElasticGangGrowsWhenNothingElseWaits) {
  World world({node("a", 8)});
  JobView& blocker = world.run(1, gpus(4));
  const Shape elastic{.ranks = 8, .rank_counts = {8, 4}, .gpu_share = 1000};
  world.run(2, elastic, Instant(0s));
  EXPECT_TRUE(stopped(world.plan(Instant(1h))).empty());
  world.room.give(*blocker.shape, blocker.places);
  world.jobs.pop_front();
  EXPECT_EQ(stopped(world.plan(Instant(1h))), Ids{2});
  EXPECT_TRUE(stopped(world.plan(Instant(1min))).empty()) << "it has only just begun";
  EXPECT_EQ(world.plan(Instant(1min)).wake, Instant(10min));
  world.add(3, gpus(5), 0, Instant(1s));
  EXPECT_TRUE(stopped(world.plan(Instant(1h))).empty()) << "3 waits for that room";
}

}  // namespace
}  // namespace tutti::sched
