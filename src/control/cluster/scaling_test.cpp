// How many replicas are wanted, as a function of what is asked for and of time alone.
#include "control/cluster/scaling.hpp"

#include <gtest/gtest.h>

namespace tutti::cluster {
namespace {

struct ScalingTest : testing::Test {
  Instant now{1000s};
  Bounds bounds{.replicas_min = 1, .replicas_max = 8, .idle_time = 10min, .target_ttft = {}};
  ScaleMemory memory;
  std::int32_t wanted = 1;
  std::string why;

  // So much is asked of that many replicas from now on, told each second for so long.
  void ask(std::int64_t waiting, std::int64_t running, Duration time = 1s, double cache = 0) {
    for (Duration passed{}; passed < time; passed += 1s) {
      now += 1s;
      Demand demand{.known = true, .waiting = waiting, .running = running, .cache_used = cache};
      demand.ready = wanted;
      const Scaling scaling = decide(demand, bounds, wanted, now, memory);
      if (scaling.wanted != wanted) why = scaling.why;
      wanted = scaling.wanted;
    }
  }
};

TEST_F(ScalingTest, WhoWaitsBringsAsManyAsCanRunThemAtMostTwiceAsManyAtOnce) {
  ask(0, 4);
  EXPECT_EQ(wanted, 1);
  ask(28, 4);
  EXPECT_EQ(wanted, 2) << "twice as many, although eight are needed";
  EXPECT_EQ(why, "28 requests wait while 4 run on 1");
  ask(28, 8, 4s);
  EXPECT_EQ(wanted, 2) << "within five seconds no more";
  ask(28, 8);
  EXPECT_EQ(wanted, 4);
  ask(280, 16, 10s);
  EXPECT_EQ(wanted, 8) << "never more than the most";
}

TEST_F(ScalingTest, FewerComeOnlyWhenFewerWereEnoughForAMinute) {
  ask(28, 4, 12s);
  const std::int32_t most = wanted;
  EXPECT_GE(most, 4);
  ask(0, 1, 55s);
  EXPECT_EQ(wanted, most);
  ask(40, 16);
  const std::int32_t after_a_peak = wanted;
  ask(0, 1, 59s);
  EXPECT_EQ(wanted, after_a_peak) << "the peak counts for a minute, too";
  ask(0, 1, 2s);
  EXPECT_EQ(wanted, 1);
  EXPECT_EQ(why, "no more were needed for 1m");
}

TEST_F(ScalingTest, TheLastOneGoesWhenNobodyHasAskedForLongAndComesBackAtOnce) {
  bounds.replicas_min = 0;
  ask(0, 0, 9min + 59s);
  EXPECT_EQ(wanted, 1);
  ask(0, 1);
  ask(0, 0, 9min + 59s);
  EXPECT_EQ(wanted, 1) << "somebody has asked since";
  ask(0, 0);
  EXPECT_EQ(wanted, 0);
  EXPECT_EQ(why, "nobody has asked for 10m");
  ask(0, 0, 1h);
  EXPECT_EQ(wanted, 0);
  ask(1, 0);
  EXPECT_EQ(wanted, 1);
  EXPECT_EQ(why, "1 request waits");
}

TEST_F(ScalingTest, FullCachesAndLateFirstTokensBringMore) {
  wanted = 4;
  ask(0, 8, 1s, 0.95);
  EXPECT_EQ(wanted, 5);
  EXPECT_EQ(why, "the caches of 4 are used to 95%");
  bounds.target_ttft = 500ms;
  const Demand late{
      .known = true, .waiting = 0, .running = 8, .cache_used = 0, .ttft_p90 = 600ms, .ready = 5};
  now += 5s;
  const Scaling scaling = decide(late, bounds, wanted, now, memory);
  EXPECT_EQ(scaling.wanted, 6);
  EXPECT_EQ(scaling.why, "first tokens take 600ms (p90), and 500ms is the target");
}

TEST_F(ScalingTest, WhereNobodyTellsAnythingNothingChanges) {
  bounds.replicas_min = 0;
  wanted = 5;
  for (int minute = 0; minute < 120; ++minute) {
    now += 1min;
    EXPECT_EQ(decide({}, bounds, wanted, now, memory).wanted, 5);
  }
  EXPECT_EQ(memory, ScaleMemory());
  bounds.replicas_max = 3;
  EXPECT_EQ(decide({}, bounds, wanted, now, memory).wanted, 3) << "but for what a person has said";
}

TEST_F(ScalingTest, WhenItIsToBeDecidedAgainIsKnown) {
  bounds.replicas_min = 0;
  wanted = 4;
  ask(0, 1);
  const Instant again = decide_again_at(bounds, wanted, memory);
  EXPECT_GT(again, now);
  now = again;
  const Demand calm{.known = true, .waiting = 0, .running = 0, .cache_used = 0, .ttft_p90 = {}, .ready = 4};
  EXPECT_EQ(decide(calm, bounds, wanted, now, memory).wanted, 1);
  const Instant idle = decide_again_at(bounds, 1, memory);
  EXPECT_EQ(decide(calm, bounds, 1, idle - 1ms, memory).wanted, 1);
  EXPECT_EQ(decide(calm, bounds, 1, idle, memory).wanted, 0);
  EXPECT_EQ(decide_again_at(bounds, 0, memory), Instant::max());
}

// What is remembered is bounded, however often it is decided.
TEST_F(ScalingTest, ItRemembersLittle) {
  for (int times = 0; times < 10'000; ++times) {
    now += 10ms;
    const Demand demand{
        .known = true, .waiting = 10'000 - times, .running = 1, .cache_used = 0, .ttft_p90 = {}, .ready = 1};
    static_cast<void>(decide(demand, bounds, wanted, now, memory));
  }
  EXPECT_LE(memory.needed.size(), 8U) << "no more than there are numbers of replicas";
}

}  // namespace
}  // namespace tutti::cluster
