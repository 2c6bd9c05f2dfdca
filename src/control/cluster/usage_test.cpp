#include "control/cluster/usage.hpp"

#include "control/cluster/parts_test.hpp"

namespace tutti::cluster {
namespace {

using UsageTest = PartsTest;

TEST_F(UsageTest, WhatRunsCountsForTheUserAndAllQueuesAbove) {
  Usage usage;
  Job& gang = job(1, 2);
  gang.spec.queue = "research/vision";
  usage.changed(change(gang, Phase::unknown, Phase::waiting));
  EXPECT_EQ(usage.of_queue("research", now).waiting, 1);
  EXPECT_EQ(usage.of_user("research/vision", "ada", now).waiting, 1);
  place(gang, "a", {0, 1});
  usage.changed(change(gang, Phase::waiting, Phase::running));
  EXPECT_EQ(usage.of_queue("research", now).waiting, 0);
  EXPECT_EQ(usage.of_queue("research", now).running, 1);
  EXPECT_EQ(usage.of_queue("research/vision", now).in_use, 2000);
  EXPECT_EQ(usage.of_queue("research", now).in_use, 2000);
  EXPECT_EQ(usage.of_user("research/vision", "ada", now).in_use, 2000);
  EXPECT_EQ(usage.of_user("research", "ada", now).in_use, 0);
  EXPECT_EQ(usage.users_of_queue("research/vision", now).size(), 1U);
  usage.changed(change(gang, Phase::running, Phase::running));
  EXPECT_EQ(usage.of_queue("research", now).in_use, 2000) << "nothing moved";
  usage.changed(change(gang, Phase::running, Phase::waiting));
  EXPECT_EQ(usage.of_queue("research", now).in_use, 0);
  EXPECT_EQ(usage.of_queue("research", now).running, 0);
  EXPECT_EQ(usage.of_user("research/vision", "ada", now).waiting, 1);
}

TEST_F(UsageTest, WhoHasJobsThatUseNothingIsNotForgotten) {
  Usage usage;
  usage.changed(change(job(1), Phase::unknown, Phase::waiting));
  usage.forget_some(now, 10);
  EXPECT_EQ(usage.of_user("default", "ada", now).waiting, 1);
  usage.changed(change(job(1), Phase::waiting, Phase::ended));
  usage.forget_some(now, 10);
  EXPECT_EQ(usage.users(), 0U);
}

TEST_F(UsageTest, WhatWasUsedFadesByHalf) {
  Usage usage;
  Job& gang = job(1);
  place(gang, "a", {0});
  usage.changed(change(gang, Phase::unknown, Phase::running));
  now += 1h;
  usage.changed(change(gang, Phase::running, Phase::ended));
  const double past = usage.of_queue("default", now).past;
  EXPECT_GT(past, 0);
  EXPECT_NEAR(usage.of_queue("default", now + usage_half_life).past, past / 2, 1e-9);
  Usage read;
  leave(gang, JobState::succeeded);
  read.remember(gang, now);
  EXPECT_DOUBLE_EQ(read.of_queue("default", now).past, past) << "the same from what the job has had";
}

TEST_F(UsageTest, ComparesWhatIsInUseAlone) {
  Usage followed;
  Job& gang = job(1);
  place(gang, "a", {0});
  followed.changed(change(gang, Phase::unknown, Phase::running));
  EXPECT_FALSE(followed.same_in_use(Usage()));
  EXPECT_FALSE(Usage().same_in_use(followed));
  followed.changed(change(gang, Phase::running, Phase::ended));
  EXPECT_TRUE(followed.same_in_use(Usage()));
}

}  // namespace
}  // namespace tutti::cluster
