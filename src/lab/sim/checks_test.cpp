#include "lab/sim/checks.hpp"

#include <gtest/gtest.h>

#include "control/wire/objects.hpp"

namespace tutti::sim {
namespace {

using cluster::JobState;
using cluster::RankState;

// A cluster of one node with one device, and one job that runs on it: what the controller has stored.
struct ChecksTest : testing::Test {
  cluster::State state;
  Checks checks;

  void SetUp() override {
    cluster::derive(state, Instant());
    cluster::Node node;
    node.name = "n1";
    node.inventory.devices = {{"H100", gib(80), "uuid"}};
    state.nodes["n1"] = node;
    add_job(1);
  }

  cluster::Job& add_job(std::uint64_t number) {
    cluster::Job& job = state.jobs[cluster::JobId(number)];
    job.id = cluster::JobId(number);
    job.spec.command = {"true"};
    job.spec.shape.gpu_share = 1000;
    job.state = JobState::starting;
    place(job);
    return job;
  }
  void place(cluster::Job& job) {
    job.holds = true;
    job.places = {{"n1", {{0, 1000}}}};
    job.ranks = {{}};
    state.active.insert(job.id);
    state.holding.insert(job.id);
  }
  void release(cluster::Job& job) {
    job.holds = false;
    state.holding.erase(job.id);
  }
  cluster::Job& job(std::uint64_t number) { return state.jobs.at(cluster::JobId(number)); }
  static RankKey key(std::uint64_t job, std::int32_t attempt) { return {cluster::JobId(job), attempt, 0}; }

  // The states of these stories are made by hand, and so is what follows from them.
  void turned(Duration now = 10s) {
    state.index.rebuild(state, Instant());
    state.tallies.clear();
    for (const cluster::JobId id : state.holding) state.tallies[id] = cluster::tally_of(state.jobs.at(id));
    state.ended = {};
    state.bytes = {};
    state.unfinished = {};
    for (const auto& [id, job] : state.jobs) {
      state.bytes.comes(job);
      if (!job.finished()) state.unfinished.add(job.spec.user, 1);
      if (job.finished() && state.ended.add(job, job.finished_at)) state.bytes.ends(job);
    }
    checks.turned(now, state);
  }
  void start(std::uint64_t job, std::int32_t attempt) { checks.process_started("n1", 7, key(job, attempt)); }
};

TEST_F(ChecksTest, AGoodStoryBreaksNothing) {
  turned();
  start(1, 0);
  job(1).ranks[0].state = RankState::started;
  job(1).state = JobState::running;
  turned();
  checks.acknowledged({cluster::JobId(1)});
  checks.process_ended(10s, key(1, 0), 0);
  job(1).state = JobState::succeeded;
  release(job(1));
  state.active.clear();
  turned();
  turned();
  EXPECT_EQ(checks.violation(), "");
  EXPECT_EQ(checks.unfinished(state), "");
}

TEST_F(ChecksTest, ARankThatIsStartedTwice) {
  turned();
  start(1, 0);
  start(1, 0);
  EXPECT_EQ(checks.violation(), "rank 1.0.0 on node n1 was started twice");
}

TEST_F(ChecksTest, AStartThatWasNotStored) {
  start(1, 0);
  EXPECT_EQ(checks.violation(), "rank 1.0.0 on node n1 was started, and no such start was stored");
}

TEST_F(ChecksTest, ADeviceThatIsGivenAwayWhileItIsUsed) {
  turned();
  start(1, 0);
  release(job(1));
  job(1).state = JobState::restarting;
  add_job(2);
  turned();
  start(2, 0);
  EXPECT_EQ(checks.violation(),
            "device 0 of node n1 was given to rank 2.0.0 while other ranks still used it");
}

TEST_F(ChecksTest, TwoAttemptsOnANodeThatWasNeverLost) {
  turned();
  start(1, 0);
  job(1).attempt = 1;
  turned();
  start(1, 1);
  EXPECT_EQ(checks.violation(), "ranks 1.0.0 and 1.1.0 run at the same time");
}

TEST_F(ChecksTest, AHalfGangThatRuns) {
  job(1).ranks[0].state = RankState::started;
  job(1).state = JobState::running;
  turned();
  EXPECT_EQ(checks.violation(), "job 1 runs without its rank 1.0.0");
}

TEST_F(ChecksTest, ASuccessThatWasNone) {
  turned();
  start(1, 0);
  checks.process_ended(10s, key(1, 0), 3);
  job(1).state = JobState::succeeded;
  release(job(1));
  state.active.clear();
  turned();
  EXPECT_EQ(checks.violation(), "job 1 succeeded, and its rank 1.0.0 did not");
}

TEST_F(ChecksTest, ATimeLimitThatWasNotReached) {
  job(1).spec.time_limit = 60s;
  turned();
  start(1, 0);
  checks.process_ended(10s, key(1, 0), 0);
  job(1).state = JobState::failed;
  job(1).reason = "ran past its time limit of 1m";
  release(job(1));
  state.active.clear();
  turned();
  EXPECT_EQ(checks.violation(), "job 1 failed by its time limit, and all of its ranks had succeeded before");
}

TEST_F(ChecksTest, AnEndThatIsUndone) {
  job(1).state = JobState::cancelled;
  release(job(1));
  state.active.clear();
  turned();
  job(1).exit_code = 5;
  turned();
  EXPECT_EQ(checks.violation(), "job 1 was finished and has changed");
}

TEST_F(ChecksTest, AJobThatRunsPastItsLimit) {
  job(1).spec.time_limit = 5s;
  turned();
  start(1, 0);
  job(1).ranks[0].state = RankState::started;
  job(1).state = JobState::running;
  turned(1000s);
  EXPECT_EQ(checks.violation(), "") << "while there are faults nobody may be able to tell";
  checks.faults_stopped(1000s);
  turned(1010s);
  EXPECT_EQ(checks.violation(), "");
  turned(1040s);
  EXPECT_EQ(checks.violation(), "job 1 runs on past its time limit of 5s");
}

TEST_F(ChecksTest, AnAttemptThatGoesBack) {
  job(1).attempt = 1;
  turned();
  job(1).attempt = 0;
  turned();
  EXPECT_EQ(checks.violation(), "job 1 went back to an older attempt");
}

TEST_F(ChecksTest, AJobThatIsForgotten) {
  checks.acknowledged({cluster::JobId(2)});
  turned();
  EXPECT_EQ(checks.violation(), "job 2 was acknowledged and is forgotten");
}

TEST_F(ChecksTest, WhatIsInMemoryAndNotStored) {
  store::Contents contents;
  contents.objects[wire::asked_key(cluster::JobId(1))] = wire::encode_asked(job(1).spec);
  contents.objects[wire::job_key(cluster::JobId(1))] = wire::encode(job(1));
  contents.objects[wire::node_key("n1")] = wire::encode(state.nodes.at("n1"));
  checks.same(state, contents);
  EXPECT_EQ(checks.violation(), "");
  job(1).exit_code = 3;
  checks.same(state, contents);
  EXPECT_EQ(checks.violation(), "job 1 in memory is not what is stored");
}

TEST_F(ChecksTest, TheFirstBrokenPromiseIsKept) {
  checks.violate("one");
  checks.violate("two");
  EXPECT_EQ(checks.violation(), "one");
}

}  // namespace
}  // namespace tutti::sim
