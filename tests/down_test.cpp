// `tutti down` when something is in its way: it was interrupted, or what it ends does not answer.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "support/cluster.hpp"
#include "support/pretender.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::TestCluster;

bool has_ended(pid_t pid) { return ::kill(pid, 0) != 0; }

TEST(Down, OneThatWasInterruptedLosesSightOfNoRank) {
  const TestCluster cluster(2, 1);
  const std::string id = cluster.submit({"--nodes", "2", "--gpus-per-rank", "1"}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const pid_t first = cluster.agent_pid("n1");
  const pid_t second = cluster.agent_pid("n2");
  ASSERT_EQ(::kill(second, SIGSTOP), 0);
  const auto down = cluster.start({"down"}, "down");
  ASSERT_TRUE(eventually([&] { return has_ended(first); }));
  down->signal(SIGINT);
  down->wait();
  EXPECT_EQ(cluster.tutti({"down"}).exit_code, 0);
  EXPECT_TRUE(cluster.ranks_on("n1").empty());
  EXPECT_TRUE(cluster.ranks_on("n2").empty());
  EXPECT_TRUE(has_ended(second));
}

// As earlier versions left it, and as a rank can: neither of its agent nor of its shim is anything noted.
TEST(Down, RanksOfWhichNothingIsNotedAreEndedToo) {
  const TestCluster cluster(2, 1);
  const std::string id = cluster.submit({"--nodes", "2", "--gpus-per-rank", "1"},
                                        "d=$(dirname $TUTTI_PROGRESS_FILE); rm $d/shim; echo >" +
                                            cluster.file("removed") + "$RANK; exec sleep 1000");
  ASSERT_TRUE(eventually([&] {
    return std::filesystem::exists(cluster.file("removed0")) &&
           std::filesystem::exists(cluster.file("removed1"));
  }));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const pid_t agent = cluster.agent_pid("n1");
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  ASSERT_TRUE(std::filesystem::remove(cluster.home() + "/processes/node-n1"));
  EXPECT_EQ(cluster.tutti({"down", "--clean"}).exit_code, 0);
  EXPECT_TRUE(cluster.ranks_on("n1").empty());
  EXPECT_TRUE(cluster.ranks_on("n2").empty());
  EXPECT_FALSE(std::filesystem::exists(cluster.home() + "/nodes"));
}

// Again and again, so that waking the shim is not enough.
TEST(Down, ARankThatStopsItsShimIsEndedAllTheSame) {
  const TestCluster cluster(1, 1);
  const std::string set = cluster.file("set");
  cluster.submit({"--grace", "200ms"}, "trap '' TERM; touch " + set + "; while :; do kill -STOP $PPID; done");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }));
  const auto down = cluster.tutti({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(cluster.ranks_on("n1").empty());
}

// The kernel does not end it with its parent any more, and it has left its session.
TEST(Down, ARankThatBecameAnotherUserIsEndedAllTheSame) {
  if (::geteuid() != 0 || !std::filesystem::exists("/usr/bin/setpriv"))
    GTEST_SKIP() << "this process may not become another user";
  const TestCluster cluster(1, 1);
  const std::string pid_file = cluster.file("pid");
  support::write_text(pid_file, "");
  for (const std::string& path : {pid_file, cluster.folder()})
    std::filesystem::permissions(path, std::filesystem::perms::all);
  cluster.submit({"--grace", "200ms"},
                 "exec setpriv --reuid=65534 --clear-groups setsid --fork --wait "
                 "sh -c 'trap \"\" TERM; echo $$ >" +
                     pid_file + "; while :; do sleep 1; done'");
  ASSERT_TRUE(eventually([&] { return has(support::read_text(pid_file), "\n"); }));
  const pid_t stranger = std::stoi(support::read_text(pid_file));
  const auto down = cluster.tutti({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(eventually([&] { return has_ended(stranger); }, 5s)) << "whoever inherits it has to reap it";
  EXPECT_TRUE(cluster.ranks_on("n1").empty());
}

// Who locks a folder there is taken for its agent, and nothing is ended that somebody else has started: but a
// rank is the cluster's own.
TEST(Down, ARankThatLocksFoldersOfItsClusterKeepsNothingFromItsEnd) {
  const TestCluster cluster(1, 1);
  const std::string locked = cluster.file("locked");
  const std::string id = cluster.submit(
      {"--restarts", "0"},
      "mkdir " + cluster.home() + "/nodes/n7 && exec python3 -c 'import fcntl, time\nfile = open(\"" +
          cluster.home() + "/nodes/n7/lock\", \"w\")\nfcntl.lockf(file, fcntl.LOCK_EX)\nopen(\"" + locked +
          "\", \"w\")\ntime.sleep(1000)'");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(locked); }));
  const auto down = cluster.tutti({"down", "--clean"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(cluster.ranks_on("n1").empty());
  EXPECT_FALSE(std::filesystem::exists(cluster.home() + "/nodes"));
}

// Root could end him, and would not know whom.
TEST(Down, WhoCallsHimselfAShimOfTheClusterAndIsSomebodyElseIsLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const support::TempFolder place;
  std::filesystem::permissions(place.path(), std::filesystem::perms(0755));
  const TestCluster cluster(1, 1);
  const support::Pretender pretender(54'321, place.path() + "/his", cluster.home() + "/nodes/n1/ranks/9.0.0");
  ASSERT_TRUE(pretender.began());
  const auto down = cluster.tutti({"down", "--clean"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(pretender.lives());
}

// Nor the next agent from its node: who waits for the lock has it as soon as the agent ends.
TEST(Down, ARankThatWaitsForTheLockOfItsAgentKeepsNoNodeFromComingBack) {
  support::PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string waits = cluster.file("waits");
  const std::string has_it = cluster.file("has");
  const std::string id = cluster.submit(
      {"--restarts", "0"},
      "d=$(dirname $TUTTI_PROGRESS_FILE); exec python3 -c 'import fcntl, sys, time\nfile = open(sys.argv[1], "
      "\"r+\")\nopen(\"" +
          waits + "\", \"w\")\nfcntl.lockf(file, fcntl.LOCK_EX)\nopen(\"" + has_it +
          "\", \"w\")\ntime.sleep(1000)' $d/../../lock");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(waits); }));
  cluster.agent("n1").signal(SIGTERM);
  cluster.agent("n1").wait();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(has_it); }));
  EXPECT_TRUE(cluster.start_agent("n1"));
  EXPECT_NE(cluster.wait(id), 0) << "the rank was killed for it";
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
}

TEST(Down, UpWithFewerNodesGoesOnWithTheJobsAllTheSame) {
  const TestCluster cluster(3, 1);
  const std::string started = cluster.file("started");
  const std::string id =
      cluster.submit({"--nodes", "2", "--gpus-per-rank", "1", "--restarts", "0"},
                     "echo >" + started + "$RANK; [ $TUTTI_ATTEMPT = 1 ] || exec sleep 1000");
  ASSERT_TRUE(eventually(
      [&] { return std::filesystem::exists(started + "0") && std::filesystem::exists(started + "1"); }));
  EXPECT_EQ(cluster.tutti({"down"}).exit_code, 0);
  const auto up = cluster.tutti({"up", "--nodes", "1", "--gpus", "1"});
  EXPECT_EQ(up.exit_code, 0) << up.err;
  EXPECT_TRUE(has(up.err, "is started too")) << up.err;
  EXPECT_EQ(cluster.wait(id), 0) << cluster.tutti({"show", id}).out;
  EXPECT_EQ(cluster.tutti({"down"}).exit_code, 0);
  EXPECT_EQ(cluster.tutti({"up", "--nodes", "1", "--gpus", "1"}).exit_code, 0);
  EXPECT_EQ(cluster.node("n1").value("state", ""), "ready");
}

TEST(Down, WaitsForNoControllerThatDoesNotAnswer) {
  const TestCluster cluster(2, 1);
  const std::string id = cluster.submit({"--nodes", "2"}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  ASSERT_EQ(::kill(cluster.controller_pid(), SIGSTOP), 0);
  const auto down = cluster.tutti({"down"});
  EXPECT_EQ(down.exit_code, 0);
  EXPECT_EQ(down.err, "") << "it is said only after a while who is waited for";
}

}  // namespace
}  // namespace tutti
