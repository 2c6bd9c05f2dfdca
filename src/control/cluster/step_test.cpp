#include "control/cluster/step.hpp"

#include <algorithm>

#include "base/exit_codes.hpp"
#include "base/prng.hpp"
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

TEST_F(ClusterTest, AJobRunsToItsEnd) {
  join("a", 8);
  const JobId id = submit(spec(4));
  EXPECT_EQ(job(id).state, JobState::starting);
  EXPECT_EQ(sent<StartRanks>(), 1U);
  all_start(id);
  EXPECT_EQ(job(id).state, JobState::running);
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_EQ(job(id).exit_code, 0);
  EXPECT_EQ(sent<ForgetRanks>(), 1U);
  EXPECT_FALSE(state.active.contains(id));
}

TEST_F(ClusterTest, WhatCanNeverFitIsRefusedWithWhatThereIs) {
  join("a", 8);
  const auto effects = happen(Submit{{spec(9)}});
  ASSERT_FALSE(effects.reply.ok());
  EXPECT_EQ(effects.reply.error().code(), ErrorCode::invalid);
  EXPECT_NE(effects.reply.error().message().find("this job can never run here: needs 9 ranks of 1 GPU"),
            std::string::npos);
  EXPECT_EQ(effects.reply.error().remedy(), "the cluster has 1 nodes, 8 H100, 16 CPUs");
  EXPECT_TRUE(state.jobs.empty());
}

TEST_F(ClusterTest, AWaitingJobSaysWhyAndStartsWhenThereIsRoom) {
  join("a", 8);
  const JobId first = submit(spec(8));
  const JobId second = submit(spec(1));
  EXPECT_EQ(job(second).state, JobState::queued);
  EXPECT_NE(why(second).find("0 matching GPUs are free"), std::string::npos) << why(second);
  all_exit(first);
  EXPECT_EQ(job(second).state, JobState::starting);
}

// Its agent may open few files, and each rank that it watches is one of them.
TEST_F(ClusterTest, ANodeGetsNoMoreRanksThanItSaysThatItCanWatch) {
  Hello few{"a", "", "10.0.0.1", 1, {}, {}};
  few.inventory.cpus = 16;
  few.inventory.memory = gib(64);
  few.inventory.watch_max = 10;
  happen(few);
  const auto refused = happen(Submit{{spec(10, 0)}});
  ASSERT_FALSE(refused.reply.ok());
  EXPECT_NE(refused.reply.error().message().find("may not open enough files to watch them"),
            std::string::npos)
      << refused.reply.error().message();
  const JobId first = submit(spec(7, 0));
  EXPECT_TRUE(job(first).placed());
  const JobId second = submit(spec(2, 0));
  EXPECT_FALSE(job(second).placed());
  EXPECT_NE(why(second).find("may not open enough files to watch them"), std::string::npos) << why(second);
  all_exit(first);
  EXPECT_TRUE(job(second).placed()) << why(second);
  // One that says nothing of it, as agents of earlier versions do, has no such bound.
  few.node = "b";
  few.inventory.watch_max = 0;
  happen(few);
  EXPECT_TRUE(job(submit(spec(100, 0))).placed());
}

TEST_F(ClusterTest, OneFailedRankEndsTheWholeGangAndIsNamed) {
  join("a", 1);
  join("b", 1);
  const JobId id = submit(spec(2));
  all_start(id);
  report(id, 1, {RankState::exited, 3, "last line"});
  EXPECT_EQ(sent<EndRanks>(), 1U);
  EXPECT_EQ(job(id).state, JobState::running) << "until the other rank has ended";
  report(id, 0, {RankState::exited, 143, ""});
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_EQ(job(id).exit_code, 3);
  EXPECT_EQ(job(id).reason, "rank 1 on node b exited with 3; last line");
}

TEST_F(ClusterTest, AProgramsFailureIsRestartedOnlyWhenAskedFor) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restart_on_failure = 1;
  const JobId id = submit(wanted);
  all_exit(id, 1);
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).state, JobState::starting);
  all_exit(id, 1);
  EXPECT_EQ(job(id).state, JobState::failed);
}

TEST_F(ClusterTest, OnlyASignalIsToldAsOne) {
  join("a", 1);
  const auto told = [this](std::int32_t code, bool by_signal) {
    const JobId id = submit(spec(1));
    all_start(id);
    RankStatus status{RankState::exited, code, ""};
    status.by_signal = by_signal;
    report(id, 0, status);
    EXPECT_EQ(job(id).exit_code, code);
    return job(id).reason;
  };
  EXPECT_EQ(told(137, true), "rank 0 on node a was ended by signal 9");
  EXPECT_EQ(told(192, true), "rank 0 on node a was ended by signal 64");
  for (const std::int32_t code : {128, 137, 192, 255})
    EXPECT_EQ(told(code, false), "rank 0 on node a exited with " + std::to_string(code));
  EXPECT_EQ(told(3, true), "rank 0 on node a exited with 3") << "that is no signal's";
}

TEST_F(ClusterTest, ARankThatEndsForGoodIsNotRestarted) {
  join("a", 2);
  JobSpec wanted = spec(2);
  wanted.restart_on_failure = 20;
  const JobId id = submit(wanted);
  all_start(id);
  report(id, 1, {RankState::exited, 1, "rank 0 aborted"});
  EXPECT_EQ(job(id).state, JobState::running) << "the other one is still to be heard";
  report(id, 0, {RankState::exited, exit_final, "it diverges"});
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_EQ(job(id).attempt, 0);
  EXPECT_EQ(job(id).exit_code, exit_final);
  EXPECT_EQ(job(id).reason, "rank 0 on node a exited with 78; it diverges; it asks for no restart");
}

TEST_F(ClusterTest, WhatCannotBeRunIsNotRestartedUnlessItHasRunBefore) {
  join("a", 2);
  JobSpec wanted = spec(1);
  wanted.restart_on_failure = 20;
  RankStatus missing{RankState::exited, 127, "cannot run 'it'"};
  missing.no_program = true;
  const JobId never = submit(wanted);
  all_start(never);
  report(never, 0, missing);
  EXPECT_EQ(job(never).state, JobState::failed);
  EXPECT_EQ(job(never).attempt, 0);
  EXPECT_EQ(job(never).exit_code, 127);
  EXPECT_EQ(job(never).reason,
            "rank 0 on node a exited with 127; cannot run 'it'; no restart would change that");

  const JobId shells = submit(wanted);
  all_start(shells);
  report(shells, 0, {RankState::exited, 127, "of a shell"});
  EXPECT_EQ(job(shells).attempt, 1) << "that it ran and ended so says nothing of the next time";

  const JobId ran = submit(wanted);
  all_start(ran);
  RankStatus saved{RankState::started};
  saved.saved_at = now;
  report(ran, 0, saved);
  report(ran, 0, {RankState::exited, 1, ""});
  ASSERT_EQ(job(ran).attempt, 1);
  all_start(ran);
  report(ran, 0, missing);
  EXPECT_EQ(job(ran).attempt, 2) << "it has run, and there may be a node that has its program";
}

TEST_F(ClusterTest, AnElasticGangGoesOnWithWhatIsLeftOfTheCluster) {
  for (const char* name : {"a", "b", "c", "d"}) join(name, 2);
  const JobId id = submit(elastic_spec({8, 4}));
  ASSERT_EQ(job(id).places.size(), 8U);
  all_start(id);
  const NodeName victim = job(id).places.back().node;
  lose(victim);
  ASSERT_EQ(job(id).attempt, 0) << "no new attempt before the survivors have ended";
  all_exit(id, 143);
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).losses, 1);
  EXPECT_EQ(job(id).state, JobState::starting);
  ASSERT_EQ(job(id).places.size(), 4U) << "six GPUs are free, and six ranks are not listed";
  EXPECT_EQ(job(id).ranks, std::vector<RankStatus>(4));
  EXPECT_EQ(gpu_share_total(job(id)), 4000);
  const auto env = rank_environment(state, job(id), 3);
  for (const char* entry : {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "NODE_RANK=1",
                            "TUTTI_RANKS_WANTED=8"}) {
    EXPECT_EQ(std::count(env.begin(), env.end(), entry), 1) << entry;
  }
  all_start(id);
  EXPECT_EQ(job(id).state, JobState::running);

  sends.clear();
  const auto places = job(id).places;
  join(victim, 2, {{id, 0, 7, {RankState::started}}});
  EXPECT_EQ(job(id).attempt, 1) << "room for more ranks does not disturb those that run";
  EXPECT_EQ(job(id).places, places);
  ASSERT_EQ(sends.size(), 2U) << "the rank that it told of, and the one that it did not";
  EXPECT_EQ(std::get<EndRanks>(sends[0]).ranks, std::vector<std::int32_t>{7});
  EXPECT_EQ(std::get<EndRanks>(sends[1]).ranks, std::vector<std::int32_t>{6});
  EXPECT_EQ(std::get<EndRanks>(sends[1]).attempt, 0);
  happen(Reported{places[0].node, {id, 1, 7, {RankState::exited, 1, ""}}});
  EXPECT_EQ(job(id).state, JobState::running) << "the attempt has no rank 7";
  sends.clear();
  derive(state, now);
  join(places[0].node, 2, {{id, 1, 0, {RankState::started}}, {id, 1, 1, {RankState::started}}});
  EXPECT_TRUE(sends.empty()) << "controller and agent start again, and agree on what runs";
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_EQ(rank_count(job(id)), 4);
}

TEST_F(ClusterTest, AnElasticGangGrowsWithItsNextAttempt) {
  join("a", 2);
  JobSpec wanted = elastic_spec({4, 3, 2});
  wanted.restart_on_failure = 1;
  const JobId id = submit(wanted);
  ASSERT_EQ(job(id).places.size(), 2U);
  join("b", 1);
  ASSERT_EQ(job(id).places.size(), 2U);
  all_exit(id, 1);
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).places.size(), 3U);
}

TEST_F(ClusterTest, AnElasticGangIsRefusedOnlyIfItsSmallestCountCanNeverFit) {
  join("a", 2);
  EXPECT_EQ(job(submit(elastic_spec({8, 4, 2}))).places.size(), 2U);
  const auto refused = happen(Submit{{elastic_spec({8, 4})}});
  ASSERT_FALSE(refused.reply.ok());
  EXPECT_NE(refused.reply.error().message().find("can never run here: needs at least 4 of 8 ranks of 1 GPU"),
            std::string::npos)
      << refused.reply.error().message();
}

TEST_F(ClusterTest, APlanWithAnotherNumberOfRanksIsNotBelieved) {
  join("a", 4);
  const JobId id = step(state, now, Submit{{elastic_spec({4, 2})}}).reply->front();
  Planned plan = planned();
  sched::Places& places = plan.plan.starts.front().places;
  ASSERT_EQ(places.ranks(), 4);
  places.slots[0].ranks = 3;
  places.devices.pop_back();
  EXPECT_TRUE(step(state, now, plan).schedule) << "another plan is asked for";
  EXPECT_FALSE(job(id).placed());
  places.slots[0].ranks = 2;
  places.devices.pop_back();
  step(state, now, plan);
  EXPECT_EQ(job(id).places.size(), 2U);
}

TEST_F(ClusterTest, RestartsAreBounded) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restarts = 1;
  const JobId id = submit(wanted);
  for (int loss = 0; loss < 2; ++loss) {
    all_start(id);
    pass(4s);
    join("a", 1);
    happen(Reported{"a", {id, loss, 0, {RankState::exited, 143, ""}}});
  }
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_NE(job(id).reason.find("restarted 1 times, which is its limit"), std::string::npos)
      << job(id).reason;
}

TEST_F(ClusterTest, LateAndDoubledReportsChangeNothing) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_exit(id);
  const State before = state;
  happen(Reported{"a", {id, 0, 0, {RankState::started}}});
  happen(Reported{"a", {id, 0, 0, {RankState::exited, 9, ""}}});
  happen(Reported{"a", {id, 5, 0, {RankState::exited, 9, ""}}});
  happen(Reported{"a", {JobId(99), 0, 0, {RankState::started}}});
  happen(Reported{"nobody", {id, 0, 7, {RankState::started}}});
  EXPECT_EQ(state.jobs, before.jobs);
}

TEST_F(ClusterTest, ATimeLimitEndsAJob) {
  join("a", 1);
  JobSpec limited = spec(1);
  limited.time_limit = 2s;
  const JobId id = submit(limited);
  all_start(id);
  pass(1s);
  EXPECT_EQ(sent<EndRanks>(), 0U);
  happen(Heard{"a"});
  pass(1500ms);
  join("a", 1, {{id, 0, 0, {RankState::started}}});
  pass(200ms);
  EXPECT_EQ(sent<EndRanks>(), 1U);
  all_exit(id, 143);
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_EQ(job(id).reason, "ran past its time limit of 2s");
}

TEST_F(ClusterTest, RanksSeeWhatLaunchersPromise) {
  state.cluster_id = "0123abcd";
  join("a", 2);
  join("b", 2);
  JobSpec wanted = spec(4);
  wanted.slurm_variables = true;
  const JobId id = submit(wanted);
  const auto env = rank_environment(state, job(id), 3);
  const auto has = [&](const std::string& entry) {
    return std::find(env.begin(), env.end(), entry) != env.end();
  };
  for (const char* entry :
       {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "NODE_RANK=1",
        "CUDA_VISIBLE_DEVICES=1", "TUTTI_CLUSTER=0123abcd", "TUTTI_JOB=1", "TUTTI_ATTEMPT=0",
        "TUTTI_RANKS_WANTED=4", "SLURM_PROCID=3", "SLURM_NNODES=2", "SLURM_JOB_NODELIST=a,b"}) {
    EXPECT_TRUE(has(entry)) << entry;
  }
  EXPECT_TRUE(has("MASTER_ADDR=10.0.0.a"));
}

TEST_F(ClusterTest, OutputPatternsNameJobArrayAndRank) {
  join("a", 2);
  JobSpec wanted = spec(2);
  wanted.name = "train";
  wanted.output = "logs/%x-%j-%A_%a.%t%%q%z%";
  const JobId id = submit(wanted);
  EXPECT_EQ(output_file(job(id), 1), "logs/train-1-1_0.1%q%z%");
  job(id).spec.array = ArrayPart{JobId(7), 3, 5, 0};
  EXPECT_EQ(output_file(job(id), 0), "logs/train-1-7_3.0%q%z%");
}

TEST_F(ClusterTest, AMeasurementReplacesTheFabric) {
  join("a", 1);
  join("b", 1);
  join("c", 1);
  const Link there{"a", "b", 5us, Bytes(1000), {}};
  const Link back{"b", "a", 5us, Bytes(1000), {}};
  const std::uint64_t before = state.revision;
  EXPECT_TRUE(happen(FabricMeasured{{there, back}}).fabric);
  EXPECT_GT(state.revision, before);
  EXPECT_EQ(state.fabric->size(), 2U);
  EXPECT_EQ(state.fabric->at({"b", "a"}).measured_at, now);
  const sched::Snapshot shared = snapshot(state, now);
  EXPECT_EQ(shared.fabric, state.fabric) << "shared, not copied";
  pass(1s);
  EXPECT_TRUE(happen(FabricMeasured{{{"a", "c", 5us, Bytes(1000), {}}}}).fabric);
  EXPECT_EQ(state.fabric->size(), 1U);
  EXPECT_EQ(state.fabric->at({"a", "c"}).measured_at, now);
  EXPECT_EQ(shared.fabric->size(), 2U) << "who has the old one keeps it";
}

TEST_F(ClusterTest, AWrongMeasurementChangesNothing) {
  join("a", 1);
  join("b", 1);
  happen(FabricMeasured{{{"a", "b", 5us, Bytes(1000), {}}}});
  const auto fabric = state.fabric;
  const auto refused = happen(FabricMeasured{{{"a", "x", 5us, Bytes(1000), {}}}});
  EXPECT_FALSE(refused.fabric);
  ASSERT_FALSE(refused.reply.ok());
  EXPECT_EQ(refused.reply.error().text(), "link from 'a' to 'x' : there is no node 'x'");
  EXPECT_EQ(state.fabric, fabric);
}

TEST_F(ClusterTest, LinksOfNodesThatAreGoneAreDroppedAtTheStart) {
  join("a", 1);
  join("b", 1);
  join("c", 1);
  happen(FabricMeasured{{{"a", "b", 5us, Bytes(1000), {}}, {"a", "c", 5us, Bytes(1000), {}}}});
  state.nodes.erase("c");
  EXPECT_FALSE(invariants(state).ok());
  derive(state, now);
  EXPECT_TRUE(invariants(state).ok());
  EXPECT_EQ(state.fabric->size(), 1U);
  EXPECT_TRUE(state.fabric->contains({"a", "b"}));
}

// Random histories: agents that answer late, twice, never, or die; users that submit and cancel. The
// invariants are checked after each step, attempts never go back, and what has ended stays as it is.
TEST_F(ClusterTest, RandomHistoriesKeepTheInvariants) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    state = {};
    now = Instant(1000s);
    derive(state, now);
    Prng prng(seed);
    const std::vector<NodeName> names{"a", "b", "c", "d"};
    std::map<JobId, std::pair<std::int32_t, JobState>> seen;
    for (int round = 0; round < 400; ++round) {
      now += std::chrono::milliseconds(prng.below(900));
      const NodeName& node = names[prng.below(names.size())];
      switch (prng.below(8)) {
        case 0:
          join(node, 4);
          break;
        case 1: {
          JobSpec wanted = spec(static_cast<std::int32_t>(prng.between(1, 6)), prng.chance(0.5) ? 1000 : 500);
          for (auto count = wanted.shape.ranks; count > 0 && prng.chance(0.5); --count)
            wanted.shape.rank_counts.push_back(count);
          wanted.restart_on_failure = static_cast<std::int32_t>(prng.below(3));
          happen(Submit{{wanted}});
          break;
        }
        case 2:
          happen(Tick{});
          break;
        case 3:
          happen(Heard{node});
          break;
        case 4:
          if (prng.chance(0.2)) happen(Drain{node, prng.chance(0.5)});
          if (prng.chance(0.5)) happen(Resume{node});
          break;
        case 5:
          happen(FabricMeasured{{{node, names[prng.below(names.size())], 5us, Bytes(1000), {}}}});
          if (prng.chance(0.1)) happen(Cancel{JobId(prng.below(state.next_job) + 1), "x"});
          break;
        default: {
          const JobId id(prng.below(state.next_job) + 1);
          RankStatus status{prng.chance(0.4) ? RankState::started : RankState::exited,
                            prng.chance(0.8) ? 0 : 1, ""};
          happen(Reported{node,
                          {id, static_cast<std::int32_t>(prng.below(3)),
                           static_cast<std::int32_t>(prng.below(6)), status}});
        }
      }
      for (const auto& [id, known] : state.jobs) {
        const auto before = seen.find(id);
        const bool known_before = before != seen.end();
        const bool ended = known_before && before->second.second >= JobState::succeeded;
        ASSERT_TRUE(!known_before || known.attempt >= before->second.first) << "seed " << seed;
        ASSERT_TRUE(!ended || known.state == before->second.second) << "seed " << seed;
        seen[id] = {known.attempt, known.state};
      }
    }
  }
}

}  // namespace
}  // namespace tutti::cluster
