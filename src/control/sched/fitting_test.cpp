#include "control/sched/fitting.hpp"

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

struct FittingTest : testing::Test {
  World world{{node("a", 8)}};
  TightestNode tightest;

  std::string why(Fitting& fitting, const Claims& claims, Draft draft, const JobView& job) {
    draft.wait(job, fitting.why(claims, job, draft));
    return sched::why(std::move(draft).finish(), job.id.number());
  }
};

TEST_F(FittingTest, TakesAsManyRanksAsFitAndAreAllowed) {
  JobView& job = world.add(1, {.ranks = 8, .rank_counts = {8, 4, 2}, .gpu_share = whole_share});
  EXPECT_EQ(place_allowed(world.room, job, no_limit, tightest)->ranks(), 8);
  EXPECT_EQ(place_allowed(world.room, job, 5 * whole_share, tightest)->ranks(), 4);
  EXPECT_FALSE(place_allowed(world.room, job, whole_share, tightest));
  world.room.take(gpus(5), place(world.room, gpus(5), tightest).value());
  EXPECT_EQ(place_allowed(world.room, job, no_limit, tightest)->ranks(), 2);
}

TEST_F(FittingTest, WhatDidNotFitOnceIsNotLookedForAgain) {
  JobView& running = world.run(1, gpus(4));
  JobView& job = world.add(2, gpus(6));
  JobView& alike = world.add(3, gpus(6));
  const Snapshot snapshot = world.snapshot();
  const Claims full(snapshot, Instant(1h));
  Fitting fitting(snapshot.shape_classes, tightest);
  EXPECT_FALSE(fitting.find(full, job, no_limit));
  EXPECT_EQ(why(fitting, full, Draft(snapshot), job),
            "needs 6 ranks of 1 GPU; 1 node takes work, 4 matching GPUs are free, 4 such ranks would fit");
  world.room.give(*running.shape, running.places);
  const Snapshot later = world.snapshot();
  const Claims empty(later, Instant(1h));
  EXPECT_FALSE(fitting.find(empty, alike, no_limit)) << "room only shrinks: it is not looked";
  EXPECT_TRUE(Fitting(later.shape_classes, tightest).find(empty, alike, no_limit));
}

TEST_F(FittingTest, ALimitSaysNothingAboutOthersOfTheShape) {
  JobView& job = world.add(1, gpus(6));
  const Snapshot snapshot = world.snapshot();
  const Claims claims(snapshot, Instant(1h));
  Fitting fitting(snapshot.shape_classes, tightest);
  EXPECT_FALSE(fitting.find(claims, job, 2 * whole_share));
  EXPECT_TRUE(fitting.find(claims, job, no_limit));
}

// Else every job of a queue with a limit would be looked for in a cluster that is full.
TEST_F(FittingTest, WhatDidNotFitWithinALimitIsNotLookedForAgain) {
  const Shape elastic{.ranks = 8, .rank_counts = {8, 6}, .gpu_share = whole_share};
  JobView& running = world.run(1, gpus(4));
  JobView& job = world.add(2, elastic);
  const Snapshot snapshot = world.snapshot();
  const Claims full(snapshot, Instant(1h));
  Fitting fitting(snapshot.shape_classes, tightest);
  EXPECT_FALSE(fitting.find(full, job, 7 * whole_share));
  world.room.give(*running.shape, running.places);
  const Snapshot later = world.snapshot();
  const Claims empty(later, Instant(1h));
  EXPECT_FALSE(fitting.find(empty, job, 6 * whole_share)) << "room only shrinks: it is not looked";
  EXPECT_TRUE(fitting.find(empty, job, 8 * whole_share)) << "of eight ranks nothing was known";
}

TEST_F(FittingTest, TellsWhatIsPromisedFromWhatIsFull) {
  JobView& endless = world.add(1, gpus(6));
  JobView& brief = world.add(2, gpus(6));
  brief.expected = 10min;
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, Instant(1h));
  Draft draft(snapshot);
  const Promise promise{JobId(9), Instant(2h), place(world.room, gpus(8), tightest).value()};
  claims.promise(endless, promise);
  draft.promise(promise);
  Fitting fitting(snapshot.shape_classes, tightest);
  EXPECT_FALSE(fitting.find(claims, endless, no_limit));
  EXPECT_EQ(
      why(fitting, claims, draft, endless),
      "the room for it is promised to job 9 at 1970-01-01T02:00:00.000Z, and it is not known to be over "
      "by then");
  EXPECT_TRUE(fitting.find(claims, brief, no_limit)) << "it is over by then";
}

// More shapes than are counted for: each still says what it needs.
TEST(Fitting, OfManyShapesEachSaysWhatItNeeds) {
  World world({node("a", 1)});
  world.run(1, gpus(1));
  for (std::uint64_t id = 2; id < 2 + shapes_counted_max + 10; ++id) {
    Shape shape = gpus(1);
    shape.memory = Bytes(static_cast<std::int64_t>(id));
    world.add(id, shape);
  }
  const Plan plan = world.plan();
  std::size_t counted = 0;
  for (std::uint64_t id = 2; id < 2 + shapes_counted_max + 10; ++id) {
    EXPECT_TRUE(why(plan, id).starts_with("needs ") || why(plan, id).find("promised") != std::string::npos)
        << why(plan, id);
    if (why(plan, id).find("takes work") != std::string::npos) ++counted;
  }
  EXPECT_GT(counted, 0U);
  EXPECT_LE(counted, shapes_counted_max);
}

}  // namespace
}  // namespace tutti::sched
