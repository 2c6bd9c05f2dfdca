// What the end of a rank says beside its exit code: how long ago it was, and whether somebody had asked for
// it.
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct ToldEnds : ClusterTest {
  void SetUp() override {
    ClusterTest::SetUp();
    join("a", 4);
  }
  JobId run(std::int32_t ranks) {
    const JobId id = submit(spec(ranks));
    all_start(id);
    return id;
  }
  void exit(JobId id, std::int32_t rank, std::int32_t code, Told told, Duration ago = {}) {
    RankStatus status{RankState::exited, code, ""};
    status.told = told;
    happen(Reported{"a", {id, job(id).attempt, rank, status, ago}});
  }
};

TEST_F(ToldEnds, AJobThatEndedWhileTheControllerWasAwayTookAsLongAsItDid) {
  const JobId id = run(2);
  now += 10min;
  exit(id, 0, 0, Told::no, 9min);
  exit(id, 1, 0, Told::no, 9min + 30s);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_EQ(job(id).finished_at - job(id).started_at, 1min) << "the last end counts, not the last word";
  EXPECT_DOUBLE_EQ(job(id).served, 2 * 60.0);
  const double charged = state.index.use_of_queue("default", now).past;
  EXPECT_NEAR(charged, 2 * 60 * 0.693147 / in_seconds(usage_half_life) * sched::whole_share, charged / 100)
      << "what it held no longer is not charged";
}

// What is on record lies in the folder of the rank. While its agent is away it can put there what it likes,
// and would be charged for nothing.
TEST_F(ToldEnds, NobodyHasEndedWhileItsNodeSaidThatItRuns) {
  const JobId id = run(1);
  now += 10min;
  happen(Heard{"a"});
  now += 5s;
  RankStatus status{RankState::exited, 0, ""};
  join("a", 4, {{id, 0, 0, status, 10min}});
  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_EQ(job(id).finished_at - job(id).started_at, 10min);
}

// A disk may take its time to tell the end of a rank, and its agent knows better.
TEST_F(ToldEnds, AnAgentThatWasThereIsBelieved) {
  const JobId id = run(1);
  now += 10min;
  happen(Heard{"a"});
  exit(id, 0, 0, Told::no, 9min);
  EXPECT_EQ(job(id).finished_at - job(id).started_at, 1min);
}

TEST_F(ToldEnds, NoClockMakesAnEndOlderThanItsStartOrNewerThanNow) {
  const JobId long_ago = run(1);
  now += 5s;
  exit(long_ago, 0, 0, Told::no, 24h);
  EXPECT_EQ(job(long_ago).finished_at, job(long_ago).started_at);
  const JobId ahead = run(1);
  now += 5s;
  exit(ahead, 0, 0, Told::no, -1h);
  EXPECT_EQ(job(ahead).finished_at, now);
}

TEST_F(ToldEnds, WhatEndedLongAgoIsKeptUntilThoseWhoWaitForItHaveHeardOfIt) {
  const JobId id = run(1);
  const JobId newest = submit(spec(4));
  now += 10min;
  exit(id, 0, 0, Told::no, 9min);
  const Retention few{.jobs_max = 0};
  happen(Expire{few});
  ASSERT_TRUE(state.jobs.contains(id)) << "its end is news";
  now += few.jobs_age_min;
  happen(Expire{few});
  EXPECT_FALSE(state.jobs.contains(id));
  EXPECT_TRUE(state.jobs.contains(newest));
}

TEST_F(ToldEnds, AJobWithoutAnAttemptEndsNow) {
  run(4);
  const JobId id = submit(spec(4));
  now += 7s;
  happen(Cancel{id, "", false});
  EXPECT_EQ(job(id).finished_at, now);
}

TEST_F(ToldEnds, WhatWasDoneBeforeItWasToldToMoveIsDone) {
  const JobId id = run(2);
  happen(Drain{"a", true});
  ASSERT_EQ(job(id).ending, EndCause::drained);
  exit(id, 0, 0, Told::no);
  exit(id, 1, 0, Told::no);
  EXPECT_EQ(job(id).state, JobState::succeeded) << job(id).reason;
  EXPECT_EQ(job(id).reason, "");
}

TEST_F(ToldEnds, WhatEndedWellBecauseItWasToldToIsNotDone) {
  for (const Told told : {Told::yes, Told::unknown}) {
    const JobId id = run(2);
    happen(Drain{"a", true});
    exit(id, 0, 0, Told::no);
    exit(id, 1, 0, told);
    EXPECT_EQ(job(id).state, JobState::restarting) << "an agent of an earlier version does not say";
    happen(Cancel{id, "", false});
    happen(Resume{"a"});
  }
}

TEST_F(ToldEnds, WhatAPersonCancelledIsCancelled) {
  const JobId id = run(1);
  happen(Cancel{id, "", false});
  exit(id, 0, 0, Told::no);
  EXPECT_EQ(job(id).state, JobState::cancelled);
}

// A store that is an older copy has forgotten that it told them to; a node that was about to join another
// cluster ended them by itself.
TEST_F(ToldEnds, AnEndThatThisStoreKnowsNothingOfIsNoFailureOfTheProgram) {
  for (const std::int32_t code : {143, 0}) {
    const JobId id = run(2);
    exit(id, 0, code, Told::yes);
    exit(id, 1, code, Told::yes);
    EXPECT_FALSE(job(id).finished()) << job(id).reason;
    EXPECT_EQ(job(id).attempt, 1);
    EXPECT_EQ(job(id).failures + job(id).losses, 0) << "it uses up no restart";
    EXPECT_NE(job(id).last_end.find("it had been told to end"), std::string::npos) << job(id).last_end;
    happen(Cancel{id, "", false});
    exit(id, 0, 0, Told::yes);
    exit(id, 1, 0, Told::yes);
  }
}

TEST_F(ToldEnds, OfAFailedGangThoseThatWereToldToEndChangeNothing) {
  const JobId id = run(2);
  exit(id, 0, 3, Told::no);
  exit(id, 1, 143, Told::yes);
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_EQ(job(id).exit_code, 3);
}

}  // namespace
}  // namespace tutti::cluster
