#include "node/keeper/keeper.hpp"

#include <algorithm>

#include <numeric>

#include <gtest/gtest.h>

namespace tutti::keeper {
namespace {

using cluster::RankState;

// Processes that only remember what they were asked for. The test says when a start has come to its end.
struct FakeProcesses final : Processes {
  std::vector<RankKey> asked;  // to start, and not answered yet
  std::map<RankKey, cluster::RankStatus> on_disk;
  std::vector<RankKey> started;
  std::vector<RankKey> ended;
  std::vector<RankKey> forgotten;
  std::vector<std::string> released;
  std::vector<std::string> released_of_others;  // once the node is of the cluster that is called new
  int prepared = 0;
  bool is_full = false;
  bool port_in_use = false;
  std::vector<std::string> env;  // of the last start
  std::vector<std::string> dropped;
  std::vector<RankKey> killed;
  std::vector<std::string> aside;
  Membership remembered;
  std::vector<RankKey> looked_at;
  Duration ago{};

  Result<std::map<RankKey, cluster::RankStatus>> adopt() override { return on_disk; }
  bool has_room(const wire::StartRanks&) override { return !is_full; }
  void prepare(const wire::StartRanks&) override { ++prepared; }
  void release(cluster::JobId job, std::int32_t attempt) override {
    if (remembered.cluster == "new") released_of_others.push_back(job.text());
    released.push_back(job.text() + "." + std::to_string(attempt));
  }
  void stop_preparing(cluster::JobId job, std::int32_t attempt) override {
    dropped.push_back(job.text() + "." + std::to_string(attempt));
  }
  void start(const wire::StartRanks& attempt, const std::string&) override {
    env = attempt.env;
    for (const auto& rank : attempt.ranks) asked.push_back({attempt.job, attempt.attempt, rank.rank});
  }
  void remember(const Membership& membership) override { remembered = membership; }
  void put_aside(const std::string& cluster) override { aside.push_back(cluster); }
  std::vector<std::int32_t> free_ports() const override { return {20'001, 20'002}; }
  Result<std::int32_t> take_port(const wire::StartRanks& attempt) override {
    if (port_in_use && !attempt.whole_gang) return failed("port 20001 is not free");
    return port_in_use ? 30'303 : attempt.master_port;
  }
  void end(const RankKey& key, bool at_once) override {
    ended.push_back(key);
    if (at_once) killed.push_back(key);
  }
  Duration ended_ago(const RankKey&) const override { return ago; }
  Duration ran(const RankKey&) const override { return 7s; }
  void forget(const RankKey& key) override { forgotten.push_back(key); }
  void look(const std::vector<RankKey>& running) override { looked_at = running; }
};

struct KeeperTest : testing::Test {
  FakeProcesses processes;
  std::vector<wire::AgentMessage> sent;
  Keeper keeper{{"n1", "", "", 1, {}, {}}, processes, [this](const wire::AgentMessage& message) {
                  sent.push_back(message);
                }};

  static wire::StartRanks start(std::vector<std::int32_t> ranks, const std::string& sync = "") {
    wire::StartRanks start;
    start.job = cluster::JobId(7);
    start.sync = sync;
    for (const auto rank : ranks) start.ranks.push_back({rank, {}, ""});
    return start;
  }
  // How all starts that were asked for go.
  void answer(const Result<>& outcome) {
    for (const RankKey& asked : std::exchange(processes.asked, {})) {
      if (outcome) processes.started.push_back(asked);
      keeper.started(asked, outcome);
    }
  }
  void run(const wire::StartRanks& ranks) {
    keeper.on(ranks);
    answer({});
  }
  static RankKey key(std::int32_t rank) { return {cluster::JobId(7), 0, rank}; }
  const cluster::RankReport& last_report() const {
    return std::get<wire::RankReports>(sent.back()).ranks.back();
  }
  const cluster::Hello& hello() {
    keeper.say_hello();
    return std::get<cluster::Hello>(sent.back());
  }
};

TEST_F(KeeperTest, ARankIsStartedOnceAndReportedEachTime) {
  run(start({0, 1}));
  run(start({0, 1}));
  EXPECT_EQ(processes.started, (std::vector{key(0), key(1)}));
  EXPECT_EQ(sent.size(), 4U);
  EXPECT_EQ(hello().ranks.size(), 2U);
}

TEST_F(KeeperTest, WhatAnEarlierAgentLeftIsNotStartedAgain) {
  processes.on_disk[key(0)] = {RankState::started};
  processes.on_disk[key(1)] = {RankState::exited, 3, ""};
  ASSERT_TRUE(keeper.adopt().ok());
  run(start({0, 1}));
  EXPECT_TRUE(processes.started.empty());
  EXPECT_EQ(last_report().status.exit_code, 3);
}

TEST_F(KeeperTest, AnEndIsToldUntilItIsForgotten) {
  run(start({0}));
  keeper.on(wire::ForgetRanks{cluster::JobId(7), 0});
  EXPECT_TRUE(processes.forgotten.empty()) << "it still runs";
  keeper.on(wire::EndRanks{cluster::JobId(7), 0, {0}});
  EXPECT_EQ(processes.ended, std::vector{key(0)});
  EXPECT_TRUE(processes.killed.empty());
  keeper.on(wire::EndRanks{cluster::JobId(7), 0, {0}, true});
  EXPECT_EQ(processes.killed, std::vector{key(0)}) << "also one that has been asked to end";
  keeper.exited(key(0), {RankState::exited, 143, ""});
  keeper.exited(key(0), {RankState::exited, 0, ""});
  EXPECT_EQ(last_report().status.exit_code, 143) << "the first end counts";
  EXPECT_EQ(hello().ranks.size(), 1U);
  keeper.on(wire::ForgetRanks{cluster::JobId(7), 0});
  EXPECT_EQ(processes.forgotten, std::vector{key(0)});
  EXPECT_TRUE(hello().ranks.empty());
}

TEST_F(KeeperTest, HowLongAgoAnEndWasIsToldAsOfEachTime) {
  run(start({0, 1}));
  processes.ago = 1s;
  keeper.exited(key(0), {RankState::exited, 0, ""});
  EXPECT_EQ(last_report().ended_ago, 1s);
  processes.ago = 9s;
  EXPECT_EQ(hello().ranks.at(0).ended_ago, 9s);
  EXPECT_EQ(hello().ranks.at(1).ended_ago, 0s) << "it runs";
  EXPECT_EQ(hello().ranks.at(1).ran, 7s);
  EXPECT_EQ(hello().ranks.at(0).ran, 0s) << "it has ended";
}

TEST_F(KeeperTest, WhatWasEndedBeforeItStartedHadBeenTold) {
  keeper.on(wire::EndRanks{cluster::JobId(7), 0, {3}});
  EXPECT_EQ(last_report().status.told, cluster::Told::yes);
}

TEST_F(KeeperTest, ARankThatCannotStartHasEnded) {
  keeper.on(start({0}));
  answer(failed("the disk is full"));
  EXPECT_EQ(last_report().status.exit_code, 126);
  EXPECT_EQ(last_report().status.detail, "could not be started: the disk is full");
}

TEST_F(KeeperTest, WhatTheNodeCouldNotDoIsToldApartFromWhatNobodyCan) {
  keeper.on(start({0}));
  answer(failed("the disk is full"));
  EXPECT_TRUE(last_report().status.node_fault);
  keeper.on(start({1}));
  answer(invalid("the rank's command has too many words"));
  EXPECT_EQ(last_report().status.exit_code, 126);
  EXPECT_FALSE(last_report().status.node_fault);
  keeper.on(start({2}, "hash"));
  keeper.prepared(cluster::JobId(7), 0, failed("No space left on device"));
  EXPECT_TRUE(last_report().status.node_fault);
  EXPECT_FALSE(last_report().status.no_room);
  keeper.on(start({3}, "hash"));
  keeper.prepared(cluster::JobId(7), 0, failed("the folder that the job ships takes 1 TiB"), Hindrance::job);
  EXPECT_TRUE(last_report().status.node_fault && last_report().status.no_room);
}

TEST_F(KeeperTest, AnIllnessIsToldWithHeartbeatsAndHello) {
  keeper.set_illness("the disk is full");
  keeper.heartbeat();
  EXPECT_EQ(std::get<wire::Heartbeat>(sent.back()).illness, "the disk is full");
  EXPECT_EQ(hello().illness, "the disk is full");
  keeper.set_illness("");
  keeper.heartbeat();
  EXPECT_EQ(std::get<wire::Heartbeat>(sent.back()).illness, "");
}

TEST_F(KeeperTest, AShippedFolderIsLaidOutFirstAndOnce) {
  keeper.on(start({0, 1}, "hash"));
  keeper.on(start({0, 1}, "hash"));
  EXPECT_EQ(processes.prepared, 1);
  EXPECT_TRUE(processes.started.empty());
  keeper.prepared(cluster::JobId(7), 0, std::string("/shipped/7.0"));
  answer({});
  EXPECT_EQ(processes.started.size(), 2U);
}

TEST_F(KeeperTest, WhatFindsNoRoomStartsWhenThereIsSome) {
  processes.is_full = true;
  keeper.on(start({0}));
  processes.is_full = false;
  keeper.on(start({1}));
  EXPECT_EQ(processes.prepared, 1) << "the rest of it waits with it";
  EXPECT_TRUE(processes.asked.empty());
  EXPECT_EQ(hello().ranks.front().status.state, RankState::assigned) << "nobody is to blame";
  keeper.prepared(cluster::JobId(7), 0, std::string("/home"));
  answer({});
  EXPECT_EQ(processes.started, (std::vector{key(0), key(1)}));
}

TEST_F(KeeperTest, WhatIsEndedBeforeItsFolderIsThereDoesNotStart) {
  keeper.on(start({0, 1}, "hash"));
  EXPECT_EQ(hello().ranks.front().status.state, RankState::assigned)
      << "it is told, so that nobody gives it up";
  keeper.on(wire::EndRanks{cluster::JobId(7), 0, {0, 1}});
  EXPECT_EQ(last_report().status.state, RankState::exited);
  EXPECT_EQ(last_report().status.detail, "it was ended before it started");
  EXPECT_EQ(processes.dropped, std::vector<std::string>{"7.0"}) << "nobody waits for it";
  keeper.on(wire::ForgetRanks{cluster::JobId(7), 0});
  EXPECT_TRUE(processes.released.empty()) << "the folder is still being laid out";
  keeper.prepared(cluster::JobId(7), 0, std::string("/shipped/7.0"));
  answer({});
  EXPECT_TRUE(processes.started.empty());
  EXPECT_EQ(processes.released, std::vector<std::string>{"7.0"});
}

TEST_F(KeeperTest, AnEndThatOvertakesItsStartIsAnswered) {
  keeper.on(wire::EndRanks{cluster::JobId(7), 0, {1}});
  EXPECT_EQ(last_report().rank, 1);
  EXPECT_EQ(last_report().status.state, RankState::exited);
  run(start({0, 1}));
  EXPECT_EQ(processes.started, std::vector{key(0)});
}

TEST_F(KeeperTest, AHelloFitsIntoAMessageHoweverMuchItsRanksHaveToTell) {
  std::vector<std::int32_t> many(3000);
  std::iota(many.begin(), many.end(), 0);
  run(start(many));
  for (const std::int32_t rank : many)
    keeper.exited(key(rank), {RankState::exited, 1, std::string(wire::detail_bytes_max, 'x')});
  const auto said = hello();
  EXPECT_EQ(said.ranks.size(), many.size());
  EXPECT_LT(wire::encode(wire::AgentMessage(said)).size(), wire::message_bytes_max);
}

TEST_F(KeeperTest, AnOrderToEndIsForThoseItNames) {
  run(start({0, 1}));
  sent.clear();
  keeper.exited(key(0), {RankState::exited, 0, ""});
  keeper.on(wire::EndRanks{cluster::JobId(7), 0, {1}});
  EXPECT_EQ(sent.size(), 1U) << "the end of rank 0 is not told once more for each order";
}

TEST_F(KeeperTest, TheFolderStaysWhileARankUsesIt) {
  keeper.on(start({0, 1}, "hash"));
  keeper.prepared(cluster::JobId(7), 0, std::string("/shipped/7.0"));
  answer({});
  keeper.exited(key(0), {RankState::exited, 0, ""});
  keeper.on(wire::ForgetRanks{cluster::JobId(7), 0});
  EXPECT_TRUE(processes.released.empty());
  keeper.exited(key(1), {RankState::exited, 0, ""});
  keeper.on(wire::ForgetRanks{cluster::JobId(7), 0});
  EXPECT_EQ(processes.released, std::vector<std::string>{"7.0"});
}

TEST_F(KeeperTest, SentencesGoOutWhenTheyChange) {
  run(start({0}));
  sent.clear();
  keeper.heartbeat();
  EXPECT_EQ(processes.looked_at, std::vector{key(0)});
  EXPECT_EQ(sent.size(), 1U) << "nothing has been seen yet";
  keeper.seen(key(0), {});
  EXPECT_EQ(sent.size(), 1U) << "nothing is new";
  keeper.seen(key(0), {"step 7", {}});
  keeper.seen(key(0), {"step 7", {}});
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(last_report().status.detail, "step 7");
}

TEST_F(KeeperTest, ACheckpointIsReportedOnce) {
  run(start({0}));
  sent.clear();
  keeper.seen(key(0), {"", Instant(7s)});
  keeper.seen(key(0), {"", Instant(7s)});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(last_report().status.saved_at, Instant(7s));
}

// A disk that does not answer is the same as one that has nothing to tell: the heartbeat does not wait for
// it.
TEST_F(KeeperTest, AHeartbeatGoesOutWhetherOrNotAnythingIsSeen) {
  run(start({0, 1}));
  sent.clear();
  for (int beat = 0; beat < 3; ++beat) keeper.heartbeat();
  EXPECT_EQ(sent.size(), 3U);
  for (const auto& message : sent) EXPECT_TRUE(std::holds_alternative<wire::Heartbeat>(message));
}

TEST_F(KeeperTest, WhatIsSeenOfARankThatHasEndedIsLate) {
  run(start({0}));
  keeper.heartbeat();
  keeper.exited(key(0), {RankState::exited, 3, "it failed"});
  sent.clear();
  keeper.seen(key(0), {"step 8", {}});
  keeper.seen(key(5), {"nobody", {}});
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(hello().ranks.front().status.detail, "it failed");
}

// ---- which cluster it is of

TEST_F(KeeperTest, TheFirstClusterIsRememberedAndHowFarItsJobsWereSeen) {
  keeper.introduce("folder", "host boot", {});
  keeper.on(wire::Welcome{"one"});
  EXPECT_EQ(processes.remembered, (Membership{"one", 0}));
  run(start({0}));
  EXPECT_EQ(processes.remembered, (Membership{"one", 7}));
  EXPECT_EQ(hello().cluster, "one");
  EXPECT_EQ(hello().jobs_seen, 7U);
  EXPECT_EQ(hello().identity, "folder");
}

TEST_F(KeeperTest, WhatTheDiskForCheckpointsRemembersIsToldOnceItIsKnown) {
  keeper.introduce("folder", "host boot", {"one", 7});
  EXPECT_EQ(hello().jobs_saved, 0U);
  sent.clear();
  keeper.saved("other", 12);
  keeper.saved("one", 7);
  EXPECT_TRUE(sent.empty()) << "nothing that is news";
  keeper.saved("one", 9);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(std::get<cluster::Hello>(sent.back()).jobs_saved, 9U);
  EXPECT_EQ(hello().jobs_seen, 7U) << "it was not started here";
  EXPECT_EQ(hello().jobs_saved, 9U) << "each controller is told";
  keeper.on(wire::Welcome{"two"});
  keeper.went_aside({});
  EXPECT_EQ(hello().jobs_saved, 0U) << "its numbers are others";
}

TEST_F(KeeperTest, RanksOfAnotherClusterEndAndGoAsideBeforeItJoins) {
  processes.on_disk[key(0)] = {RankState::started};
  processes.on_disk[key(1)] = {RankState::exited, 0, ""};
  keeper.introduce("folder", "host boot", {"old", 7});
  ASSERT_TRUE(keeper.adopt().ok());
  keeper.on(wire::Welcome{"new"});
  EXPECT_EQ(processes.ended, std::vector{key(0)});
  EXPECT_TRUE(processes.aside.empty()) << "one still runs";
  run(start({0}));
  EXPECT_TRUE(processes.started.empty()) << "it has not joined yet";
  sent.clear();
  keeper.exited(key(0), {RankState::exited, 143, ""});
  EXPECT_EQ(processes.aside, std::vector<std::string>{"old"});
  run(start({0}));
  EXPECT_TRUE(processes.started.empty()) << "the old ones have not gone aside yet";
  EXPECT_TRUE(processes.released.empty());
  keeper.went_aside({});
  EXPECT_EQ(processes.released, std::vector<std::string>{"7.0"})
      << "nothing of it waits for a job of the new";
  EXPECT_TRUE(processes.released_of_others.empty());
  EXPECT_EQ(processes.remembered, (Membership{"new", 0}));
  const auto& joined = std::get<cluster::Hello>(sent.back());
  EXPECT_EQ(joined.cluster, "new");
  EXPECT_TRUE(joined.ranks.empty());
  run(start({0}));
  EXPECT_EQ(processes.started, std::vector{key(0)}) << "job 7 of the new cluster is another one";
}

TEST_F(KeeperTest, TheOldClusterMayComeBackWhileItsRanksEnd) {
  processes.on_disk[key(0)] = {RankState::started};
  keeper.introduce("folder", "host boot", {"old", 7});
  ASSERT_TRUE(keeper.adopt().ok());
  keeper.on(wire::Welcome{"new"});
  keeper.on(wire::Welcome{"old"});
  keeper.exited(key(0), {RankState::exited, 143, ""});
  EXPECT_TRUE(processes.aside.empty());
  EXPECT_EQ(last_report().status.exit_code, 143);
}

TEST_F(KeeperTest, ARankThatHasRunHereBeforeDoesNotRunAgain) {
  keeper.on(start({0}));
  answer(unknown("it has run here before"));
  EXPECT_TRUE(processes.started.empty());
  EXPECT_TRUE(last_report().status.node_fault) << "no fault of the program's";
  EXPECT_TRUE(last_report().status.blameless) << "it uses up no restart";
  EXPECT_FALSE(last_report().status.vanished);
}

TEST_F(KeeperTest, WhatCannotGoAsideIsTriedAgainWithTheNextHeartbeat) {
  keeper.introduce("folder", "host boot", {"old", 7});
  keeper.on(wire::Welcome{"new"});
  keeper.went_aside(failed("the disk is full"));
  EXPECT_EQ(processes.aside.size(), 1U);
  keeper.heartbeat();
  EXPECT_EQ(processes.aside.size(), 2U);
  keeper.on(wire::Welcome{"old"});
  keeper.went_aside({});
  EXPECT_EQ(hello().cluster, "old") << "it came back while the ranks were moved";
  run(start({0}));
  EXPECT_EQ(processes.started, std::vector{key(0)});
}

// ---- while a start is under way

TEST_F(KeeperTest, ARankIsAssignedUntilItsStartHasComeToItsEnd) {
  keeper.on(start({0, 1}));
  EXPECT_TRUE(sent.empty()) << "nothing is known yet";
  EXPECT_TRUE(keeper.running(key(0)));
  EXPECT_EQ(hello().ranks.front().status.state, RankState::assigned);
  keeper.on(start({0, 1}));
  EXPECT_EQ(last_report().status.state, RankState::assigned) << "it is told again, and not started twice";
  EXPECT_EQ(processes.asked.size(), 2U);
  keeper.heartbeat();
  EXPECT_TRUE(processes.looked_at.empty());
  keeper.started(key(1), {});
  EXPECT_EQ(last_report().rank, 1) << "each is told as it starts";
  EXPECT_EQ(last_report().status.state, RankState::started);
}

TEST_F(KeeperTest, WhatIsEndedWhileItStartsIsToldAsEndedOnlyWhenThatIsSure) {
  keeper.on(start({0, 1}));
  keeper.on(wire::EndRanks{cluster::JobId(7), 0, {0, 1}});
  EXPECT_TRUE(sent.empty()) << "it may still come to run";
  EXPECT_EQ(processes.ended, (std::vector{key(0), key(1)}));
  keeper.on(wire::ForgetRanks{cluster::JobId(7), 0});
  EXPECT_EQ(hello().ranks.size(), 2U);
  keeper.started(key(0), failed("it was stopped"));
  EXPECT_EQ(last_report().status.detail, "it was ended before it started");
  EXPECT_FALSE(last_report().status.node_fault);
  keeper.started(key(1), {});
  EXPECT_EQ(last_report().status.state, RankState::started);
  EXPECT_EQ(processes.ended, (std::vector{key(0), key(1), key(1)})) << "it ran, and is ended now";
}

TEST_F(KeeperTest, AnEndThatIsHeardBeforeItsStartStays) {
  keeper.on(start({0}));
  keeper.exited(key(0), {RankState::exited, 3, ""});
  keeper.started(key(0), {});
  EXPECT_EQ(hello().ranks.front().status.exit_code, 3);
}

TEST_F(KeeperTest, AnotherClusterWaitsForStartsThatAreUnderWay) {
  keeper.introduce("folder", "host boot", {"old", 7});
  keeper.on(start({0}));
  keeper.on(wire::Welcome{"new"});
  EXPECT_EQ(processes.ended, std::vector{key(0)});
  keeper.heartbeat();
  EXPECT_TRUE(processes.aside.empty());
  keeper.started(key(0), {});
  EXPECT_TRUE(processes.aside.empty());
  keeper.exited(key(0), {RankState::exited, 143, ""});
  EXPECT_EQ(processes.aside, std::vector<std::string>{"old"});
}

TEST_F(KeeperTest, AnotherClusterWaitsForFoldersThatAreLaidOut) {
  keeper.introduce("folder", "host boot", {"old", 7});
  keeper.on(start({0}, "hash"));
  keeper.on(wire::Welcome{"new"});
  EXPECT_EQ(processes.dropped, std::vector<std::string>{"7.0"});
  EXPECT_TRUE(processes.aside.empty()) << "or its end would be taken for that of a job of the new one";
  keeper.prepared(cluster::JobId(7), 0, failed("nobody wants it any more"));
  EXPECT_TRUE(processes.asked.empty());
  EXPECT_EQ(processes.aside, std::vector<std::string>{"old"});
}

TEST_F(KeeperTest, APortInUseIsNoFaultOfTheProgram) {
  processes.port_in_use = true;
  auto gang = start({0, 1});
  gang.master_port = 20'001;
  run(gang);
  EXPECT_TRUE(processes.started.empty());
  EXPECT_TRUE(last_report().status.node_fault);
  EXPECT_TRUE(last_report().status.blameless) << "it counts for nothing";
  EXPECT_FALSE(last_report().status.vanished);
  EXPECT_EQ(last_report().status.detail, "could not be started: port 20001 is not free");
  EXPECT_TRUE(std::holds_alternative<wire::FreePorts>(sent.front())) << "it tells those that are";
}

TEST_F(KeeperTest, AGangThatIsWhollyHereStartsWithAnotherPortThanOneInUse) {
  processes.port_in_use = true;
  auto gang = start({0, 1});
  gang.master_port = 20'001;
  gang.whole_gang = true;
  gang.env = {"MASTER_PORT=mine", "MASTER_PORT=20001", "PORT=20001"};
  run(gang);
  EXPECT_EQ(processes.started.size(), 2U);
  EXPECT_EQ(processes.env, (std::vector<std::string>{"MASTER_PORT=mine", "MASTER_PORT=30303", "PORT=20001"}));
}

TEST_F(KeeperTest, OtherDevicesAreTold) {
  cluster::Inventory inventory;
  inventory.cpus = 4;
  keeper.has(inventory);
  keeper.has(inventory);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(std::get<cluster::Hello>(sent.back()).inventory.cpus, 4);
}

}  // namespace
}  // namespace tutti::keeper
