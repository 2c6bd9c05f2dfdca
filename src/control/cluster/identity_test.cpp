// Names and numbers that are never used twice: ids of jobs, ports of gangs, indices of devices.
#include <algorithm>
#include <set>

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct IdentityTest : ClusterTest {
  void SetUp() override {
    state.cluster_id = "ours";
    derive(state, now);
  }

  Hello hello(const NodeName& name, int gpus) const {
    Hello hello{name, "", "10.0.0.1", 1, {}, {}};
    for (int gpu = 0; gpu < gpus; ++gpu)
      hello.inventory.devices.push_back({"H100", gib(80), "GPU-" + name + std::to_string(gpu)});
    hello.inventory.cpus = 16;
    hello.inventory.memory = gib(64);
    hello.cluster = "ours";
    return hello;
  }
  std::string variable(JobId id, std::int32_t rank, const std::string& name) {
    for (const std::string& entry : rank_environment(state, job(id), rank)) {
      if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    }
    return "unset";
  }
  // One whose agent's folder is known by its identity.
  Hello acquaintance(const NodeName& name) const {
    Hello known = hello(name, 1);
    known.identity = "folder of " + name;
    return known;
  }
};

// ---- ids of jobs

TEST_F(IdentityTest, AnIdThatIsGivenOutIsStored) {
  EXPECT_TRUE(happen(Submit{{spec(1)}}).cluster);
  EXPECT_FALSE(happen(hello("a", 1)).cluster);
}

TEST_F(IdentityTest, AnIdThatANodeHasSeenIsNotGivenOutAgain) {
  Hello seen = hello("a", 1);
  seen.jobs_seen = 41;
  EXPECT_TRUE(happen(seen).cluster);
  EXPECT_EQ(submit(spec(1)), JobId(42));
  seen.jobs_seen = 7;
  EXPECT_FALSE(happen(seen).cluster) << "nothing new";
}

TEST_F(IdentityTest, TheJobsOfAnotherClusterDoNotCount) {
  Hello seen = hello("a", 1);
  seen.cluster = "theirs";
  seen.jobs_seen = 41;
  happen(seen);
  EXPECT_EQ(submit(spec(1)), JobId(1));
}

// The store is an older copy: it knows jobs up to 2, and a node has seen 9. Who got 3 before that was known
// would find the checkpoints of another job.
TEST_F(IdentityTest, AWaitingJobWithAnIdThatHadBeenGivenOutIsHeld) {
  happen(acquaintance("a"));
  happen(acquaintance("b"));
  const JobId before = submit(spec(2));
  submit(spec(1));
  derive(state, now);  // as after a restart
  happen(acquaintance("a"));
  const JobId doubtful = submit(spec(1));
  ASSERT_EQ(doubtful, JobId(3));
  Hello seen = acquaintance("b");
  seen.jobs_seen = 9;
  happen(seen);
  EXPECT_TRUE(job(before).held.empty());
  EXPECT_TRUE(job(JobId(2)).held.empty()) << "the store knew it";
  EXPECT_FALSE(job(doubtful).placed());
  EXPECT_NE(why(doubtful).find("submit it again"), std::string::npos) << why(doubtful);
  EXPECT_EQ(submit(spec(1)), JobId(10));
  EXPECT_TRUE(happen(Release{doubtful}).reply.ok()) << "a person may know better";
}

// Its store and the folders of its agents are older copies: only the disk for checkpoints knows, and tells
// late.
TEST_F(IdentityTest, AnIdUnderWhichSomethingIsSavedIsNotGivenOutAgain) {
  happen(acquaintance("a"));
  submit(spec(1));
  derive(state, now);  // as after a restart
  happen(acquaintance("a"));
  const JobId doubtful = submit(spec(1));
  ASSERT_EQ(doubtful, JobId(2));
  ASSERT_FALSE(job(doubtful).placed()) << "the first has the only device";
  Hello told = acquaintance("a");
  told.jobs_saved = 9;
  EXPECT_TRUE(happen(told).cluster);
  EXPECT_NE(why(doubtful).find("submit it again"), std::string::npos) << why(doubtful);
  const JobId next = submit(spec(1));
  EXPECT_EQ(next, JobId(10));
  told.jobs_saved = 20;
  happen(told);
  EXPECT_TRUE(job(next).held.empty()) << "it has told before";
  EXPECT_EQ(submit(spec(1)), JobId(21));
}

// All see the same disk, and one that the older store does not know tells first.
TEST_F(IdentityTest, WhatAStrangerToldFirstIsHeardFromAnAcquaintanceToo) {
  happen(acquaintance("a"));
  submit(spec(1));
  derive(state, now);  // as after a restart
  const JobId doubtful = submit(spec(1));
  ASSERT_EQ(doubtful, JobId(2));
  Hello stranger = acquaintance("z");
  stranger.inventory = {};
  stranger.jobs_saved = 9;
  happen(stranger);
  EXPECT_TRUE(job(doubtful).held.empty());
  const JobId after = submit(spec(1));
  EXPECT_EQ(after, JobId(10));
  Hello known = acquaintance("a");
  known.jobs_saved = 9;
  happen(known);
  EXPECT_FALSE(job(doubtful).placed());
  EXPECT_NE(why(doubtful).find("submit it again"), std::string::npos) << why(doubtful);
  EXPECT_TRUE(job(after).held.empty());
}

// As many were submitted to the older copy as it lacks, or more, before those who know better are back.
TEST_F(IdentityTest, AJobThatHasNotBegunHasSeenAndSavedNothing) {
  for (const bool on_disk : {false, true}) {
    state = {};
    SetUp();
    happen(acquaintance("a"));
    derive(state, now);  // as after a restart
    const JobId first = submit(spec(1));
    const JobId second = submit(spec(1));
    const JobId third = submit(spec(1));
    Hello known = acquaintance("a");
    (on_disk ? known.jobs_saved : known.jobs_seen) = second.number();
    happen(known);
    for (const JobId id : {first, second}) {
      EXPECT_FALSE(job(id).placed()) << on_disk;
      EXPECT_NE(why(id).find("submit it again"), std::string::npos) << why(id);
    }
    EXPECT_TRUE(job(third).held.empty()) << on_disk;
  }
}

TEST_F(IdentityTest, AnIdThatWasGivenOutSinceTheStartTellsOfNoOlderCopy) {
  happen(acquaintance("a"));
  happen(acquaintance("b"));
  derive(state, now);  // as after a restart
  happen(acquaintance("a"));
  const JobId runs = submit(spec(1));
  const JobId waits = submit(spec(1));
  submit(spec(1));
  Hello known = acquaintance("b");
  known.inventory = {};
  known.jobs_saved = runs.number();
  happen(known);
  EXPECT_FALSE(job(waits).placed());
  EXPECT_TRUE(job(waits).held.empty());
}

// Whoever has the join token may say what it likes: it costs ids, and nobody's job.
TEST_F(IdentityTest, WhatAnAgentClaimsEndsAndHoldsNothing) {
  happen(acquaintance("a"));
  derive(state, now);
  happen(acquaintance("a"));
  const JobId runs = submit(spec(1));
  const JobId waits = submit(spec(1));
  const auto unharmed = [&](const char* who) {
    EXPECT_TRUE(job(runs).placed()) << who;
    EXPECT_EQ(job(runs).ending, EndCause::none) << who;
    EXPECT_FALSE(job(waits).finished()) << who;
    EXPECT_TRUE(job(waits).held.empty()) << who;
  };
  Hello liar = acquaintance("z");
  liar.inventory = {};
  liar.jobs_seen = state.next_job + 5;
  happen(liar);
  unharmed("a stranger");
  liar.jobs_seen = state.next_job + 5;
  happen(liar);
  unharmed("one that says it again");
  liar.jobs_saved = state.next_job + 5;
  happen(liar);
  unharmed("a stranger with a disk");
  Hello thief = acquaintance("a");
  thief.identity = "another folder";
  thief.jobs_seen = state.next_job + 5;
  thief.ranks = {{runs, 0, 0, {RankState::started}}};
  happen(thief);
  unharmed("one with another's name");
  thief.jobs_saved = state.next_job + 5;
  happen(thief);
  unharmed("one with another's name and a disk");
  Hello known = acquaintance("a");
  known.ranks = thief.ranks;
  known.jobs_seen = state.next_job + 5;
  happen(known);
  unharmed("a known one that has greeted before");
  derive(state, now);
  now += 2min;
  known.jobs_seen = state.next_job + 5;
  happen(known);
  unharmed("a known one that comes late");
}

// ---- numbers of attempts

TEST_F(IdentityTest, AnAttemptThatAnOlderStoreDoesNotKnowIsPassedOver) {
  const JobId id = submit(spec(1));
  Hello seen = hello("a", 1);
  seen.ranks = {{id, 3, 0, {RankState::started}}};
  EXPECT_TRUE(happen(seen).jobs.contains(id)) << "it is stored before the node forgets it";
  EXPECT_FALSE(job(id).placed()) << "the node still runs it";
  happen(Reported{"a", {id, 3, 0, {RankState::exited, 143, ""}}});
  ASSERT_TRUE(job(id).placed());
  EXPECT_EQ(job(id).attempt, 4);
  all_start(id);
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

TEST_F(IdentityTest, ARunningAttemptThatAnOlderStoreBelievesInUsesUpNoRestart) {
  happen(hello("a", 1));
  JobSpec wanted = spec(1);
  wanted.restarts = 0;
  const JobId id = submit(wanted);
  all_start(id);
  Hello seen = hello("a", 1);
  seen.ranks = {{id, 3, 0, {RankState::exited, 143, ""}}};
  happen(seen);
  ASSERT_TRUE(job(id).placed()) << why(id);
  EXPECT_EQ(job(id).attempt, 4);
  EXPECT_EQ(job(id).losses, 0);
}

TEST_F(IdentityTest, AnAgentThatInventsAttemptsDoesNotUseUpTheirNumbers) {
  happen(hello("a", 1));
  const JobId id = submit(spec(1));
  all_start(id);
  happen(Reported{"a", {id, 2'000'000'000, 0, {RankState::exited, 0, ""}}});
  EXPECT_EQ(job(id).attempt_told, -1);
  happen(Reported{"a", {id, 5, 0, {RankState::exited, 0, ""}}});
  EXPECT_TRUE(job(id).placed()) << "nobody's word ends a job";
  EXPECT_EQ(job(id).attempt, 0);
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_FALSE(happen(Reported{"a", {id, 7, 0, {RankState::exited, 0, ""}}}).jobs.contains(id));
}

// ---- ports

TEST_F(IdentityTest, AGangGetsAPortThatTheAgentOfItsFirstRankKeeps) {
  Hello first = hello("a", 1);
  Hello second = hello("b", 1);
  first.ports = {20'100, 20'200};
  second.ports = {20'300};
  happen(first);
  happen(second);
  const JobId gang = submit(spec(2));
  const NodeName leader = job(gang).places.front().node;
  const std::int32_t port = job(gang).master_port;
  EXPECT_EQ(std::set<std::int32_t>({20'100, 20'200}).contains(port), leader == "a") << port;
  EXPECT_EQ(variable(gang, 0, "MASTER_PORT"), std::to_string(port));
  EXPECT_EQ(variable(gang, 1, "MASTER_PORT"), std::to_string(port));
}

TEST_F(IdentityTest, APortIsGivenToOneGangAtATime) {
  Hello first = hello("a", 3);
  first.ports = {20'100};
  happen(first);
  const JobId one = submit(spec(1));
  EXPECT_EQ(job(one).master_port, 20'100);
  happen(PortsHeld{"a", {20'100, 20'101}});  // said before the agent knew
  const JobId two = submit(spec(1));
  EXPECT_EQ(job(two).master_port, 20'101);
  const JobId three = submit(spec(1));
  EXPECT_NE(job(three).master_port, 20'100) << "guessed, if the agent has told of no other";
  EXPECT_NE(job(three).master_port, 20'101);
}

TEST_F(IdentityTest, AGangWhosePortIsInUseStartsAgainWithAnother) {
  Hello first = hello("a", 1);
  first.ports = {20'100, 20'101};
  happen(first);
  const JobId gang = submit(spec(1));
  const std::int32_t port = job(gang).master_port;
  RankStatus refused{RankState::exited, 126, "port is not free"};
  refused.node_fault = true;
  report(gang, 0, refused);
  EXPECT_EQ(job(gang).losses, 0);
  EXPECT_EQ(job(gang).attempt, 1);
  EXPECT_EQ(job(gang).state, JobState::starting);
  EXPECT_NE(job(gang).master_port, port);
}

TEST_F(IdentityTest, TwoClustersGuessDifferently) {
  happen(hello("a", 1));
  const JobId ours = submit(spec(1));
  State other;
  other.cluster_id = "theirs";
  derive(other, now);
  step(other, now, hello("a", 1));
  step(other, now, Submit{{spec(1)}});
  step(other, now, Planned{sched::schedule(snapshot(other, now), now), other.index.generation()});
  EXPECT_NE(job(ours).master_port, other.jobs.at(JobId(1)).master_port);
}

// ---- devices

TEST_F(IdentityTest, RanksGetTheirDevicesByName) {
  happen(hello("a", 4));
  const JobId gang = submit(spec(2, 2000));
  EXPECT_EQ(variable(gang, 0, "CUDA_VISIBLE_DEVICES"), "GPU-a0,GPU-a1");
  EXPECT_EQ(variable(gang, 1, "CUDA_VISIBLE_DEVICES"), "GPU-a2,GPU-a3");
  EXPECT_EQ(variable(gang, 1, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
}

TEST_F(IdentityTest, DevicesWithoutANameAreGivenByIndex) {
  Hello fake = hello("a", 2);
  for (Device& device : fake.inventory.devices) device.uuid = "FAKE-0";
  happen(fake);
  const JobId gang = submit(spec(2));
  EXPECT_EQ(variable(gang, 1, "CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(variable(gang, 1, "CUDA_DEVICE_ORDER"), "unset");
}

TEST_F(IdentityTest, NothingIsPlacedOnASilentDeviceAndNoOtherMoves) {
  Hello node = hello("a", 3);
  happen(node);
  const JobId before = submit(spec(1));
  ASSERT_EQ(variable(before, 0, "CUDA_VISIBLE_DEVICES"), "GPU-a0");
  node.inventory.devices[1].silent = true;
  node.ranks = {{before, 0, 0, {RankState::started}}};
  happen(node);
  const JobId after = submit(spec(1));
  EXPECT_EQ(variable(after, 0, "CUDA_VISIBLE_DEVICES"), "GPU-a2");
  const JobId waits = submit(spec(1));
  EXPECT_FALSE(job(waits).placed());
  node.inventory.devices[1].silent = false;
  node.ranks.push_back({after, 0, 0, {RankState::started}});
  happen(node);
  EXPECT_EQ(variable(waits, 0, "CUDA_VISIBLE_DEVICES"), "GPU-a1");
}

TEST_F(IdentityTest, ADeviceThatFallsSilentInUseStaysWithItsRank) {
  Hello node = hello("a", 2);
  happen(node);
  const JobId user = submit(spec(1));
  node.inventory.devices[0].silent = true;
  node.ranks = {{user, 0, 0, {RankState::started}}};
  happen(node);
  EXPECT_TRUE(job(user).placed());
  all_exit(user);
  EXPECT_EQ(job(user).state, JobState::succeeded);
}

}  // namespace
}  // namespace tutti::cluster
