// What running ranks say between their start and their end.
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

TEST_F(ClusterTest, WhatARunningRankSaysIsStoredNowAndThen) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  pass(2s);
  happen(Heard{"a"});
  for (int word = 0; word < 1'000; ++word) {
    RankStatus says{RankState::started, 0, "step " + std::to_string(word)};
    says.saved_at = now - 1s + std::chrono::microseconds(word);
    EXPECT_TRUE(happen(Reported{"a", {id, 0, 0, says}}).jobs.empty()) << "each would be a commit";
  }
  EXPECT_EQ(job(id).ranks[0].detail, "step 999") << "who asks is told the newest";
  EXPECT_EQ(job(id).saved_at, now - 1s + 999us);
  now += note_every;
  EXPECT_EQ(happen(Tick{}).jobs, std::set<JobId>{id});
  EXPECT_TRUE(happen(Tick{}).jobs.empty()) << "there is nothing new";
  report(id, 0, {RankState::started, 0, "once more"});
  EXPECT_TRUE(happen(Tick{}).jobs.empty()) << "it is not due";
  now += note_every;
  EXPECT_EQ(happen(Tick{}).jobs, std::set<JobId>{id});
}

// Whatever the clocks of node and controller say: the folder was there.
TEST_F(ClusterTest, ThatAJobHasItsFolderForCheckpointsIsKnownToAllLaterAttempts) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  EXPECT_FALSE(job(id).has_saved);
  RankStatus says{RankState::started, 0, ""};
  says.saved_at = now + 1h;
  report(id, 0, says);
  EXPECT_TRUE(job(id).has_saved);
  now += note_every;
  EXPECT_EQ(happen(Tick{}).jobs, std::set<JobId>{id}) << "it is stored";
  report(id, 0, {RankState::exited, 137, "gone", true});
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_TRUE(job(id).has_saved);
}

}  // namespace
}  // namespace tutti::cluster
