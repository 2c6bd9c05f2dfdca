#include "control/sched/explain.hpp"

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

using Lines = std::vector<std::string>;

// "7 instead of 8 nodes: 0s": how long from now.
Lines suggested(const Explanation& answer, Instant now) {
  Lines lines;
  for (const Suggestion& suggestion : answer.suggestions) {
    EXPECT_EQ(suggestion.now, suggestion.start == now);
    lines.push_back(suggestion.change + ": " + format_duration(suggestion.start - now));
  }
  return lines;
}

std::string expected(const Explanation& answer, Instant now) {
  return answer.expected_start ? format_duration(*answer.expected_start - now) : "unknown: " + answer.unknown;
}

TEST(Explain, WhatFitsStartsNow) {
  World world({node("a", 8)});
  const JobView& job = world.add(1, gpus(8));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_TRUE(answer.starts_now);
  EXPECT_EQ(answer.why, "");
  EXPECT_EQ(answer.queue, "default");
  EXPECT_EQ(answer.expected_start, Instant(1h));
  EXPECT_TRUE(answer.suggestions.empty());
}

TEST(Explain, AJobNeedNotBeSubmitted) {
  World world({node("a", 8)});
  world.run(1, gpus(4)).expected = 2h;
  Snapshot snapshot = world.snapshot();
  const JobView& job = world.add(2, gpus(8));
  snapshot.shape_classes = static_cast<std::uint32_t>(world.classes.size());
  const Explanation answer = explain(snapshot, job, Instant(1h));
  EXPECT_FALSE(answer.starts_now);
  EXPECT_EQ(expected(answer, Instant(1h)), "1h");
  EXPECT_EQ(suggested(answer, Instant(1h)), Lines{"4 instead of 8 ranks: 0s"});
}

TEST(Explain, BehindWhom) {
  World world({node("a", 8)});
  world.run(1, gpus(8), Instant(0s)).expected = 1h;
  for (std::uint64_t id = 2; id <= 8; ++id) world.add(id, gpus(8), 0, Instant(1s)).expected = 1h;
  world.add(9, gpus(8), 5, Instant(2s)).expected = 1h;
  world.run(10, {.ranks = 1, .cpus = 1}, Instant(0s)).expected = 10h;
  const Explanation answer = explain(world.snapshot(), world.jobs[7], Instant(30min));
  EXPECT_EQ(answer.ahead, 7U);
  EXPECT_EQ(answer.ahead_ids, (std::vector<JobId>{JobId(9), JobId(2), JobId(3), JobId(4), JobId(5)}));
  EXPECT_NE(answer.why, "");
}

// Eight come before it, each for an hour, and each is started in the forecast when the one before it has
// ended.
TEST(Explain, TheForecastGoesThroughTheQueue) {
  World world({node("a", 8)});
  world.run(1, gpus(8), Instant(0s)).expected = 1h;
  for (std::uint64_t id = 2; id <= 10; ++id) world.add(id, gpus(8), 0, Instant(1s)).expected = 1h;
  const Explanation answer = explain(world.snapshot(), world.jobs.back(), Instant(0s));
  EXPECT_EQ(answer.ahead, 8U);
  EXPECT_EQ(expected(answer, Instant(0s)), "9h");
}

TEST(Explain, WhatIsPromisedIsExpected) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(8), Instant(0s)).expected = 2h;
  const JobView& job = world.add(2, gpus(16), 0, Instant(1s));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_EQ(expected(answer, Instant(1h)), "1h");
  EXPECT_EQ(answer.why.substr(0, 11), "is promised");
}

TEST(Explain, WithoutTimeLimitsNothingIsExpected) {
  World world({node("a", 8)});
  world.run(12, gpus(4));
  const JobView& job = world.add(20, gpus(8), 0, Instant(1s));
  EXPECT_EQ(expected(explain(world.snapshot(), job, Instant(1h)), Instant(1h)),
            "unknown: job 12 runs without a time limit");
  World other({node("a", 8)});
  for (std::uint64_t id = 12; id <= 16; ++id) other.run(id, gpus(1));
  const JobView& waits = other.add(20, gpus(8), 0, Instant(1s));
  EXPECT_EQ(expected(explain(other.snapshot(), waits, Instant(1h)), Instant(1h)),
            "unknown: jobs 12, 13, 14 and 2 more run without a time limit");
  World closed({node("a", 8)});
  closed.room.set_open(0, false);
  const JobView& shut_out = closed.add(20, gpus(8), 0, Instant(1s));
  EXPECT_EQ(expected(explain(closed.snapshot(), shut_out, Instant(1h)), Instant(1h)),
            "unknown: nothing that runs now makes room for it");
}

TEST(Explain, WhatMakesWayDoesSoWithinItsGracePeriod) {
  World world({node("a", 8)});
  world.run(1, gpus(8)).grace = 30s;
  const JobView& job = world.add(2, gpus(4), 5, Instant(1s));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_EQ(answer.why, "starts when job 1 has made way");
  EXPECT_EQ(expected(answer, Instant(1h)), "30s");
}

// The one that makes way for another comes back, which the forecast knows.
TEST(Explain, TheForecastKnowsWhoMakesWay) {
  World world({node("a", 8)});
  world.run(1, gpus(8), Instant(0s)).expected = 10h;
  world.add(2, gpus(8), 5, Instant(1s)).expected = 1h;
  const JobView& job = world.add(3, gpus(8), 0, Instant(2s));
  EXPECT_EQ(expected(explain(world.snapshot(), job, Instant(0s)), Instant(0s)), "11h")
      << "2 runs for an hour, then 1 once more for ten: it was there before 3";
}

TEST(Explain, HeldJobsSayWhatTheyWaitFor) {
  World world({node("a", 8)});
  JobView job = world.add(3, gpus(1));
  world.jobs.clear();
  world.held.push_back({JobId(3), "waits for job 2 to end"});
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_EQ(answer.why, "waits for job 2 to end");
  EXPECT_FALSE(answer.expected_start.has_value());
  EXPECT_TRUE(answer.suggestions.empty());
}

// ---- what would start it sooner

TEST(Explain, FewerNodes) {
  std::vector<NodeView> nodes;
  nodes.reserve(8);
  for (int at = 0; at < 8; ++at) nodes.push_back(node("n" + std::to_string(at), 8));
  World world(nodes);
  world.run(1, gpus(8), Instant(0s)).expected = 5h;
  const JobView& job =
      world.add(2, {.ranks = 64, .ranks_per_node = 8, .nodes = 8, .gpu_share = 1000}, 0, Instant(1s));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_EQ(expected(answer, Instant(1h)), "4h");
  EXPECT_EQ(suggested(answer, Instant(1h)), Lines{"7 instead of 8 nodes: 0s"});
}

TEST(Explain, AnotherModel) {
  World world({node("a", 8, "H100"), node("b", 8, "A100"), node("c", 2, "L4"), node("d", 8, "V100")});
  world.run(1, gpus(8, "H100"), Instant(0s)).expected = 9h;
  world.run(2, gpus(8, "V100"), Instant(0s)).expected = 2h;
  const JobView& job = world.add(3, gpus(8, "H100"), 0, Instant(1s));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_EQ(suggested(answer, Instant(1h)), (Lines{"A100 instead of H100: 0s", "V100 instead of H100: 1h"}))
      << "there are too few L4";
}

TEST(Explain, ALargerPartOfTheFabric) {
  World world({node("a", 4, "A100", 16, "s/p/r1"), node("b", 4, "H100", 16, "s/p/r1"),
               node("c", 4, "H100", 16, "s/p/r2"), node("d", 4, "H100", 16, "s/q/r3")});
  world.run(1, gpus(4, "A100"), Instant(0s)).expected = 3h;
  const auto in_one = [&](Level level) {
    Shape shape = gpus(8);
    shape.within = level;
    return shape;
  };
  const JobView& job = world.add(2, in_one(Level::rack), 0, Instant(1s));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  const Lines lines = suggested(answer, Instant(1h));
  EXPECT_NE(std::find(lines.begin(), lines.end(), "within one pod instead of one rack: 0s"), lines.end())
      << testing::PrintToString(lines);
  World spread({node("a", 4, "H100", 16, "s/p/r1"), node("b", 4, "H100", 16, "s/p/r1"),
                node("c", 4, "H100", 16, "t/q/r2"), node("d", 4, "H100", 16, "u/v/r3")});
  spread.run(1, gpus(8), Instant(0s)).expected = 3h;
  const JobView& other = spread.add(2, in_one(Level::rack), 0, Instant(1s));
  const Lines anywhere = suggested(explain(spread.snapshot(), other, Instant(1h)), Instant(1h));
  EXPECT_NE(std::find(anywhere.begin(), anywhere.end(), "anywhere instead of within one rack: 0s"),
            anywhere.end())
      << testing::PrintToString(anywhere);
}

// Sixteen are promised to 2 for when 1 has ended; what is over by then runs before.
TEST(Explain, AShorterTimeLimit) {
  World world({node("a", 8), node("b", 8)});
  world.run(1, gpus(8), Instant(0s)).expected = 5h;
  world.add(2, gpus(16), 0, Instant(1s)).expected = 1h;
  JobView& job = world.add(3, gpus(8), 0, Instant(2s));
  job.expected = job.time_limit = 8h;
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_EQ(expected(answer, Instant(1h)), "5h") << "when 2 has ended";
  EXPECT_EQ(suggested(answer, Instant(1h)), Lines{"time limit of 4h instead of 8h: 0s"});
  job.expected = job.time_limit = 0h;
  EXPECT_EQ(suggested(explain(world.snapshot(), job, Instant(1h)), Instant(1h)),
            Lines{"time limit of 4h instead of none: 0s"});
}

TEST(Explain, AnotherQueue) {
  World world({node("a", 8)});
  world.queues = {{.name = "research", .limit = 4000}, {.name = "small", .limit = 2000}, {.name = "vision"}};
  world.run(1, gpus(4), Instant(0s)).expected = 3h;
  const JobView& job = world.add(2, gpus(4), 0, Instant(1s));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_EQ(answer.why, "needs 4 GPUs; queue research uses 4 of at most 4");
  EXPECT_EQ(answer.queue, "research");
  EXPECT_EQ(expected(answer, Instant(1h)), "2h");
  EXPECT_EQ(suggested(answer, Instant(1h)), Lines{"queue vision instead of research: 0s"});
}

TEST(Explain, ALimitIsAReasonToAskForLess) {
  World world({node("a", 8)});
  world.queues = {{.name = "research", .limit = 6000}};
  world.run(1, gpus(4), Instant(0s)).expected = 3h;
  const JobView& job = world.add(2, gpus(4), 0, Instant(1s));
  EXPECT_EQ(suggested(explain(world.snapshot(), job, Instant(1h)), Instant(1h)),
            Lines{"2 instead of 4 ranks: 0s"});
}

// Whatever is suggested is what the scheduler does.
TEST(Explain, NothingIsChanged) {
  World world({node("a", 8)});
  world.run(1, gpus(6), Instant(0s)).expected = 3h;
  const JobView& job = world.add(2, gpus(4), 0, Instant(1s));
  const Snapshot snapshot = world.snapshot();
  const Explanation first = explain(snapshot, job, Instant(1h));
  const Explanation again = explain(snapshot, job, Instant(1h));
  EXPECT_EQ(suggested(first, Instant(1h)), suggested(again, Instant(1h)));
  EXPECT_TRUE(snapshot.room.same_free(world.room));
  EXPECT_EQ(snapshot.queued.size(), 1U);
}

// What yields is looked at again and again, and the forecast with it: it ends all the same.
TEST(Explain, AForecastDoesNotGoOnForEver) {
  World world({node("a", 8)});
  world.run(1, gpus(4), Instant(0s));
  world.run(2, gpus(4), Instant(0s)).yields = true;
  JobView& job = world.add(3, gpus(8), 0, Instant(0s));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h));
  EXPECT_FALSE(answer.expected_start.has_value());
  EXPECT_NE(answer.unknown.find("jobs 1, 2 run without a time limit"), std::string::npos) << answer.unknown;
}

// More come before it than are promised a time, so that the scheduler is asked for each of their ends.
TEST(Explain, WhyIsToldWhenTheRestTakesTooLong) {
  World world({node("a", 8)});
  world.run(1, gpus(8), Instant(0s)).expected = 2h;
  for (std::uint64_t id = 2; id <= 20; ++id) world.add(id, gpus(8), 0, Instant(1s)).expected = 1h;
  const JobView& job = world.add(21, gpus(8), -1, Instant(2s));
  const Snapshot snapshot = world.snapshot();
  int asked = 0;
  const Enough never_enough = [&] { return ++asked < 0; };
  const Explanation whole = explain(snapshot, job, Instant(1h), {never_enough, never_enough});
  EXPECT_EQ(expected(whole, Instant(1h)), "20h");
  EXPECT_GT(asked, 20);
  for (int enough_after = 0; enough_after < asked; ++enough_after) {
    int left = enough_after;
    const Enough enough = [&] { return --left < 0; };
    const Explanation answer = explain(snapshot, job, Instant(1h), {enough, enough});
    EXPECT_EQ(answer.why, whole.why);
    EXPECT_EQ(answer.ahead, 19U);
    EXPECT_TRUE(answer.expected_start == whole.expected_start ||
                answer.unknown == "too much happens before it can start")
        << answer.unknown;
    EXPECT_TRUE(enough_after > 0 || (!answer.expected_start && answer.suggestions.empty()));
    EXPECT_GE(left, -20) << "it ends soon: asked once more for each change that it would try";
  }
}

TEST(Explain, ChangesAreLookedForWhereTheStartIsNotFoundInTime) {
  World world({node("a", 8)});
  world.run(1, gpus(4), Instant(0s)).expected = 2h;
  for (std::uint64_t id = 2; id <= 8; ++id) world.add(id, gpus(8), 0, Instant(1s)).expected = 1h;
  const JobView& job = world.add(9, gpus(8), -1, Instant(2s));
  const Explanation answer = explain(world.snapshot(), job, Instant(1h), {.start = [] { return true; }});
  EXPECT_FALSE(answer.expected_start.has_value());
  EXPECT_FALSE(answer.suggestions.empty());
}

}  // namespace
}  // namespace tutti::sched
