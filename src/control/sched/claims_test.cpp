#include "control/sched/claims.hpp"

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

constexpr Kinds every_kind = ~Kinds{0};

std::int32_t whole(const Room& room) { return room.whole_in(0, every_kind); }

Places anywhere(const Room& room, const Shape& shape) { return place(room, shape, TightestNode()).value(); }

TEST(Claims, WhatIsTakenIsGoneFromAllThree) {
  World world({node("a", 8), node("b", 8)});
  JobView& ending = world.run(1, gpus(4));
  ending.ending = true;
  JobView& unknown = world.add(2, gpus(2));
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, Instant(1h));
  EXPECT_EQ(whole(claims.free()), 12);
  EXPECT_EQ(whole(claims.soon_for(unknown)), 16) << "when 1 has ended";
  claims.promise(unknown, {JobId(9), Instant(2h), anywhere(claims.free(), gpus(2))});
  EXPECT_EQ(whole(claims.unpromised()), 10);
  claims.take(unknown, anywhere(claims.unpromised(), gpus(2)));
  EXPECT_EQ(whole(claims.free()), 10);
  EXPECT_EQ(whole(claims.unpromised()), 8);
  EXPECT_EQ(whole(claims.soon_for(unknown)), 12) << "less what is promised";
}

TEST(Claims, OnlyWhatIsOverInTimeMayUseWhatIsPromised) {
  World world({node("a", 8)});
  JobView& job = world.add(1, gpus(2));
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, Instant(1h));
  EXPECT_FALSE(claims.goes_around(job)) << "nothing is promised";
  claims.promise(job, {JobId(9), Instant(3h), anywhere(claims.free(), gpus(2))});
  EXPECT_TRUE(claims.goes_around(job)) << "nobody knows how long it runs";
  job.expected = 90min;
  EXPECT_FALSE(claims.goes_around(job));
  EXPECT_EQ(whole(claims.free_for(job)), 8);
  claims.promise(job, {JobId(8), Instant(2h), anywhere(claims.unpromised(), gpus(2))});
  EXPECT_TRUE(claims.goes_around(job)) << "the first promise counts";
  EXPECT_EQ(whole(claims.free_for(job)), 4);
}

TEST(Claims, WhatIsStoppedWillBeFree) {
  World world({node("a", 8), node("b", 8)});
  JobView& stopped = world.run(1, gpus(8));
  JobView& ending = world.run(2, gpus(4));
  ending.ending = true;
  ending.grace = 30s;
  JobView& job = world.add(3, gpus(2));
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, Instant(1h));
  EXPECT_FALSE(claims.stopped(stopped));
  claims.stop(stopped);
  EXPECT_TRUE(claims.stopped(stopped));
  EXPECT_EQ(whole(claims.free()), 4) << "it still runs";
  EXPECT_EQ(whole(claims.soon_for(job)), 16);
  EXPECT_EQ(claims.ended_by(), Instant(1h + 30s));
  claims.promise(job, {JobId(9), Instant(2h), anywhere(claims.free(), gpus(4))});
  EXPECT_EQ(whole(claims.soon_for(job)), 12);
}

TEST(Claims, WhatTakesLongToEndIsNotWaitedFor) {
  World world({node("a", 8), node("b", 8)});
  JobView& ending = world.run(1, gpus(4));
  ending.ending = true;
  ending.ends_by = Instant(2h);
  JobView& stopped = world.run(2, gpus(4));
  stopped.grace = 1h;
  JobView& job = world.add(3, gpus(2));
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, Instant(1h));
  claims.stop(stopped);
  EXPECT_TRUE(claims.stopped(stopped));
  EXPECT_EQ(whole(claims.soon_for(job)), 8);
  EXPECT_EQ(claims.ended_by(), Instant(1h));
  EXPECT_TRUE(claims.ending().empty());
  claims.promise(job, {JobId(9), Instant(2h), anywhere(claims.free(), gpus(2))});
  EXPECT_EQ(whole(claims.soon_for(job)), 6);
}

// It starts only then, and is not over by then.
TEST(Claims, WhoWaitsForAnEndGoesAroundWhatIsPromisedSoonAfter) {
  World world({node("a", 8)});
  JobView& ending = world.run(1, gpus(4));
  ending.ending = true;
  ending.ends_by = Instant(1h + 30s);
  JobView& job = world.add(2, gpus(2));
  job.expected = 20s;
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, Instant(1h));
  claims.promise(job, {JobId(9), Instant(1h + 40s), anywhere(claims.free(), gpus(2))});
  EXPECT_EQ(whole(claims.free_for(job)), 4);
  EXPECT_EQ(whole(claims.soon_for(job)), 6);
}

}  // namespace
}  // namespace tutti::sched
