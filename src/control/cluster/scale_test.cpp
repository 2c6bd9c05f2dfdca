// What must not take longer with everything that is there: counted, not timed.
#include "control/cluster/cluster_test.hpp"
#include "control/cluster/environment.hpp"
#include "control/cluster/explain.hpp"
#include "control/cluster/parts_test.hpp"

namespace tutti::cluster {
namespace {

struct Scale : testing::Test {
  State state;
  Instant now{1000s};

  void SetUp() override { derive(state, now); }

  Effects happen(const Event& event) {
    Effects effects = step(state, now, event);
    if (!effects.schedule) return effects;
    Effects planned =
        step(state, now, Planned{sched::schedule(snapshot(state, now), now), state.index.generation()});
    std::move(planned.sends.begin(), planned.sends.end(), std::back_inserter(effects.sends));
    return effects;
  }
  void join(const std::string& name, std::int32_t cpus) {
    Hello hello{name, "", "10.0.0.1", 1, {}, {}};
    hello.inventory.cpus = cpus;
    step(state, now, hello);
  }
  std::string broken() const {
    const auto checked = invariants(state);
    return checked ? "" : checked.error().text();
  }
};

TEST_F(Scale, MoreRanksThanTheCpusCarryAreRefusedAtOnce) {
  join("a", 2);
  const auto refused = happen(Submit{{spec(100'000, 0)}});
  ASSERT_FALSE(refused.reply.ok());
  EXPECT_NE(refused.reply.error().text().find("32 such ranks would fit"), std::string::npos)
      << refused.reply.error().text();
}

TEST_F(Scale, AHundredThousandRanksRunAndEndWithoutAWalkForEach) {
  for (int node = 0; node < 2'000; ++node) join("n" + std::to_string(node), 4);
  const auto placed = happen(Submit{{spec(100'000, 0)}});
  ASSERT_TRUE(placed.reply.ok()) << placed.reply.error().text();
  Job& gang = state.jobs.at(placed.reply->front());
  ASSERT_EQ(gang.places.size(), 100'000U);
  // A start for each node that has ranks of it, and each rank once.
  std::size_t ranks = 0;
  for (const Send& send : placed.sends) ranks += std::get<StartRanks>(send).ranks.size();
  EXPECT_EQ(ranks, 100'000U);
  EXPECT_EQ(placed.sends.size(), nodes_of(gang).size());
  for (const RankState reached : {RankState::started, RankState::exited}) {
    for (std::int32_t rank = 0; rank < 100'000; ++rank) {
      const auto& place = gang.places[static_cast<std::size_t>(rank)];
      step(state, now, Reported{place.node, {gang.id, 0, rank, {reached}}});
      if (rank == 50'000) {
        EXPECT_EQ(state.tallies.at(gang.id), tally_of(gang));
      }
    }
    if (reached == RankState::started) {
      EXPECT_EQ(gang.state, JobState::running);
    }
  }
  EXPECT_EQ(gang.state, JobState::succeeded);
  EXPECT_TRUE(state.tallies.empty());
}

// What the ranks of a node share is told once, and what is a rank's own is short.
TEST_F(Scale, WhatRanksShareIsNotRepeatedForEach) {
  for (int node = 0; node < 100; ++node) join("n" + std::to_string(node), 1);
  JobSpec wanted = spec(1'000, 0);
  wanted.slurm_variables = true;
  wanted.shape.ranks_per_node = 10;
  const auto placed = happen(Submit{{wanted}});
  ASSERT_TRUE(placed.reply.ok());
  const Job& gang = state.jobs.at(placed.reply->front());
  const GangEnvironment environment(state, gang);
  std::set<std::string> lists;
  for (const NodeName& node : nodes_of(gang)) {
    for (const std::string& variable : environment.of_node(node)) {
      if (variable.starts_with("SLURM_JOB_NODELIST=")) lists.insert(variable);
    }
  }
  EXPECT_EQ(lists.size(), 1U);
  for (std::int32_t rank = 0; rank < 1'000; ++rank) {
    std::size_t bytes = 0;
    for (const std::string& variable : environment.of_rank(rank)) bytes += variable.size();
    EXPECT_LT(bytes, 128U);
    const auto whole = rank_environment(state, gang, rank);
    const std::string local = "LOCAL_RANK=" + std::to_string(rank % 10);
    EXPECT_EQ(std::count(whole.begin(), whole.end(), local), 1) << rank;
  }
}

TEST_F(Scale, AFailureIsToldToThoseThatNeedItsSuccessAlone) {
  join("a", 4);
  for (int other = 0; other < 500; ++other) {
    JobSpec waits = spec(1, 0);
    waits.shape.cpus = 4;
    happen(Submit{{waits}});
  }
  const JobId first(1);
  ASSERT_TRUE(state.jobs.at(first).placed());
  JobSpec needs = spec(1, 0);
  needs.after = {{first, true}};
  const JobId second = happen(Submit{{needs}}).reply->front();
  needs.after = {{second, true}, {JobId(2), false}};
  const JobId third = happen(Submit{{needs}}).reply->front();
  EXPECT_EQ(state.index.dependencies().all(), 3U);
  EXPECT_EQ(broken(), "");
  step(state, now, Reported{"a", {first, 0, 0, {RankState::exited, 1, ""}}});
  EXPECT_EQ(state.index.doomed(), (std::map<JobId, JobId>{{second, first}}));
  EXPECT_EQ(broken(), "");
  step(state, now, EndDoomed{});
  EXPECT_EQ(state.jobs.at(second).reason, "job 1, whose success it needs, failed");
  EXPECT_EQ(state.jobs.at(third).reason, "job 501, whose success it needs, cancelled");
  EXPECT_EQ(state.index.dependencies().all(), 0U);
  EXPECT_EQ(broken(), "");
}

// One more than are kept must not mean that all are numbered anew at each look.
TEST_F(Scale, MoreShapesThanAreKeptAreNotReadAgainAtEachSnapshot) {
  join("a", 1);
  state.jobs.clear();
  for (std::uint64_t id = 1; id <= shapes_max + 10; ++id) {
    Job& job = state.jobs[JobId(id)];
    job.id = JobId(id);
    job.spec = spec(1, 0);
    job.spec.shape.memory = Bytes(static_cast<std::int64_t>(id));
    job.submitted_at = job.queued_at = now;
  }
  derive(state, now);
  for (int pass = 0; pass < 5; ++pass) static_cast<void>(snapshot(state, now));
  EXPECT_LE(state.index.numbering(), 1U);
}

TEST_F(Scale, QuestionsAboutALongQueueShareOneCopy) {
  join("a", 1);
  for (std::size_t job = 0; job < standing_shared_min + 10; ++job) {
    JobSpec waits = spec(1, 0);
    waits.shape.cpus = 1;
    step(state, now, Submit{{waits}});
  }
  const Question first = question_about(state, now, state.jobs.at(JobId(5)));
  happen(Submit{{spec(1, 0)}});
  now += standing_age_max / 2;
  const Question second = question_about(state, now, state.jobs.at(JobId(7)));
  EXPECT_EQ(first.standing, second.standing);
  now += standing_age_max;
  const Question third = question_about(state, now, state.jobs.at(JobId(7)));
  EXPECT_NE(first.standing, third.standing) << "it is never older than that";
  EXPECT_FALSE(second.answer().why.empty());
}

TEST_F(Scale, AShortQueueIsAlwaysAskedAsItIs) {
  join("a", 1);
  JobSpec waits = spec(1, 0);
  waits.shape.cpus = 1;
  for (int job = 0; job < 3; ++job) happen(Submit{{waits}});
  const Question first = question_about(state, now, state.jobs.at(JobId(2)));
  happen(Submit{{waits}});
  EXPECT_NE(first.standing, question_about(state, now, state.jobs.at(JobId(2))).standing);
}

}  // namespace
}  // namespace tutti::cluster
