#include "control/sched/releases.hpp"

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

struct ReleasesTest : testing::Test {
  World world{{node("a", 8), node("b", 8)}};
  TightestNode tightest;
  Instant now{1h};
};

TEST_F(ReleasesTest, TheEarliestTimeAtWhichEnoughHasEnded) {
  world.run(1, gpus(8)).expected = 3h;
  JobView& ending = world.run(2, gpus(8));
  ending.ending = true;
  ending.grace = 30s;
  JobView& one_node = world.add(3, gpus(8));
  JobView& both = world.add(4, gpus(16));
  JobView& never_fits = world.add(5, gpus(17));
  const Snapshot snapshot = world.snapshot();
  const Claims claims(snapshot, now);
  const Draft draft(snapshot);
  Releases releases(snapshot, now);
  EXPECT_EQ(releases.find(claims, draft, one_node, tightest)->start, now + 30s);
  EXPECT_EQ(releases.find(claims, draft, both, tightest)->start, Instant(3h));
  EXPECT_FALSE(releases.find(claims, draft, never_fits, tightest));
}

TEST_F(ReleasesTest, AnEndThatWasAskedForDoesNotMoveWithTheClock) {
  JobView& ending = world.run(1, gpus(16));
  ending.ending = true;
  ending.grace = 10min;
  ending.ends_by = now + 10min;
  JobView& job = world.add(2, gpus(8));
  const Snapshot snapshot = world.snapshot();
  for (const Duration later : {0min, 9min}) {
    const Claims claims(snapshot, now + later);
    EXPECT_EQ(Releases(snapshot, now + later).find(claims, Draft(snapshot), job, tightest)->start,
              now + 10min);
  }
  const Claims claims(snapshot, now + 12min);
  EXPECT_EQ(Releases(snapshot, now + 12min).find(claims, Draft(snapshot), job, tightest)->start, now + 14min)
      << "it is late by two minutes, and may be by two more";
}

TEST_F(ReleasesTest, NothingIsPromisedWhereNobodyKnows) {
  world.run(1, gpus(16));
  JobView& job = world.add(2, gpus(1));
  const Snapshot snapshot = world.snapshot();
  EXPECT_FALSE(Releases(snapshot, now).find(Claims(snapshot, now), Draft(snapshot), job, tightest));
}

TEST_F(ReleasesTest, WhatStartsInThisPassEndsToo) {
  JobView& starts = world.add(1, gpus(16));
  starts.expected = 2h;
  JobView& job = world.add(2, gpus(8));
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, now);
  Draft draft(snapshot);
  Releases releases(snapshot, now);
  const Places places = place(claims.free(), gpus(16), tightest).value();
  claims.take(starts, places);
  draft.start(starts, places);
  EXPECT_EQ(releases.find(claims, draft, job, tightest)->start, now + 2h);
}

TEST_F(ReleasesTest, TheRoomOfWhatIsStoppedIsSpokenFor) {
  JobView& running = world.run(1, gpus(16));
  running.expected = 2h;
  JobView& job = world.add(2, gpus(8));
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, now);
  claims.stop(running);
  EXPECT_FALSE(Releases(snapshot, now).find(claims, Draft(snapshot), job, tightest));
}

}  // namespace
}  // namespace tutti::sched
