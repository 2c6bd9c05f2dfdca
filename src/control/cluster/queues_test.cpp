// Queues, and gangs that make way.
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

TEST_F(ClusterTest, AGangThatMakesWayKeepsItsPlaceAndIsNotBlamed) {
  join("a", 1);
  const JobId low = submit(spec(1));
  all_start(low);
  JobSpec important = spec(1);
  important.priority = 5;
  const JobId high = submit(important);
  EXPECT_EQ(job(low).ending, EndCause::preempted);
  EXPECT_EQ(why(high), "starts when job " + low.text() + " has made way");
  now += 5s;
  report(low, 0, {RankState::exited, 143, ""});
  EXPECT_EQ(job(low).state, JobState::restarting);
  EXPECT_EQ(job(low).preemptions, 1);
  EXPECT_EQ(job(low).failures, 0);
  EXPECT_EQ(job(low).last_end, "makes way for job " + high.text());
  EXPECT_GT(job(low).served, 0);
  ASSERT_TRUE(job(high).placed());
  all_start(high);
  report(high, 0, {RankState::exited, 0, ""});
  EXPECT_TRUE(job(low).placed()) << "it is back";
  EXPECT_EQ(job(low).attempt, 1);
}

TEST_F(ClusterTest, OfTwoThatCouldMakeWayTheOneWithTheNewerCheckpointDoes) {
  join("a", 2);
  const JobId first = submit(spec(1));
  const JobId second = submit(spec(1));
  all_start(first);
  all_start(second);
  now += 60s;
  RankStatus saved{RankState::started, 0, ""};
  saved.saved_at = now - 1s;
  report(first, 0, saved);
  saved.saved_at = now + 3600s;
  report(second, 0, saved);
  EXPECT_EQ(job(second).saved_at, Instant()) << "its node's clock is ahead";
  JobSpec important = spec(1);
  important.priority = 5;
  submit(important);
  EXPECT_EQ(job(first).ending, EndCause::preempted);
  EXPECT_EQ(job(second).ending, EndCause::none);
}

// Else whoever asks for the most is always first.
TEST_F(ClusterTest, AQueueBoundsThePrioritiesOfItsJobs) {
  happen(SetQueue{.name = "research"});
  happen(SetQueue{.name = "research/vision"});
  JobSpec urgent = spec(1);
  urgent.priority = 1000;
  urgent.queue = "research/vision";
  EXPECT_TRUE(happen(Submit{{urgent}}).reply.ok());
  ASSERT_TRUE(happen(SetQueue{.name = "research", .priority_max = 10}).reply.ok());
  const auto refused = happen(Submit{{urgent}}).reply;
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().text(), "the jobs of the queue research have a priority of at most 10, not 1000");
  urgent.priority = 10;
  EXPECT_TRUE(happen(Submit{{urgent}}).reply.ok());
  EXPECT_FALSE(happen(SetQueue{.name = "research", .priority_max = 1001}).reply.ok());
  ASSERT_TRUE(happen(SetQueue{.name = "research", .priority_max = priority_max}).reply.ok());
  urgent.priority = 1000;
  EXPECT_TRUE(happen(Submit{{urgent}}).reply.ok()) << "it was taken away";
}

TEST_F(ClusterTest, QueuesAreCheckedAndKept) {
  const auto why_not = [&](const SetQueue& queue) {
    const auto effects = happen(queue);
    return effects.reply ? "" : effects.reply.error().text();
  };
  EXPECT_EQ(why_not({.name = "research", .guarantee = 4000}), "");
  EXPECT_EQ(why_not({.name = "research/vision", .guarantee = 3000}), "");
  EXPECT_NE(why_not({.name = "research/speech", .guarantee = 2000}), "") << "research itself has only four";
  EXPECT_NE(why_not({.name = "other/part"}), "") << "there is no other";
  for (const char* const name : {"a//b", ".", "..", "research/.", "../research", "research/../x"})
    EXPECT_NE(why_not({.name = name}), "") << name;
  EXPECT_EQ(why_not({.name = "v1.2"}), "");
  EXPECT_NE(why_not({.name = "small", .guarantee = 2000, .limit = 1000}), "");
  EXPECT_NE(why_not({.name = "light", .weight = 0}), "");
  EXPECT_FALSE(happen(RemoveQueue{"research"}).reply.ok()) << "it has a part";
  EXPECT_FALSE(happen(RemoveQueue{"default"}).reply.ok());
  JobSpec in_it = spec(1);
  in_it.queue = "research/vision";
  const JobId id = submit(in_it);
  EXPECT_FALSE(happen(RemoveQueue{"research/vision"}).reply.ok()) << "it has a job";
  const JobId second = submit(in_it);
  EXPECT_EQ(happen(RemoveQueue{"research/vision"}).reply.error().message(),
            "2 jobs are in the queue 'research/vision'");
  happen(Cancel{second, ""});
  happen(Cancel{id, ""});
  EXPECT_TRUE(happen(RemoveQueue{"research/vision"}).reply.ok());
  EXPECT_EQ(why_not({.name = "tiny", .limit = 1000}), "");
  in_it.queue = "tiny";
  in_it.shape.ranks = 2;
  EXPECT_FALSE(happen(Submit{{in_it}}).reply.ok()) << "it would wait for ever";
}

}  // namespace
}  // namespace tutti::cluster
