// `tutti up` and `tutti down`, several at once: one cluster at a time, and nothing is left behind.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "support/cluster.hpp"
#include "support/small_disk.hpp"

namespace tutti {
namespace {

using support::has;
using support::Process;
using support::read_text;
using support::TempFolder;

TEST(Up, SeveralAtOnceMakeOneClusterAndDownEndsIt) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const std::map<std::string, std::string> env{{"TUTTI_HOME", home}};
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Process>> ups;
    std::vector<std::string> outputs;
    for (int at = 0; at < 4; ++at) {
      outputs.push_back(folder.path() + "/up." + std::to_string(round) + "." + std::to_string(at));
      ups.push_back(std::make_unique<Process>(
          std::vector<std::string>{support::tutti_program, "up", "--nodes", "2", "--gpus", "1"},
          outputs.back(), env));
    }
    int started = 0;
    for (std::size_t at = 0; at < ups.size(); ++at) {
      const int code = ups[at]->wait();
      const std::string said = read_text(outputs[at] + ".err");
      started += code == 0 ? 1 : 0;
      EXPECT_TRUE(code == 0 || has(said, "a local cluster runs already")) << code << said;
    }
    EXPECT_EQ(started, 1);
    const auto nodes = support::run({support::tutti_program, "nodes", "--json"}, {.env = env});
    EXPECT_EQ(nlohmann::json::parse(nodes.out, nullptr, false).size(), 2U) << nodes.out << nodes.err;
    EXPECT_EQ(support::run({support::tutti_program, "down"}, {.env = env}).exit_code, 0);
    ups.clear();
    const auto left = support::processes_naming(home);
    EXPECT_TRUE(left.empty()) << left.size() << " processes outlived `tutti down`";
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
  }
}

TEST(Up, OneThatIsInterruptedEndsWhatItHasStarted) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  Process up({support::tutti_program, "up", "--nodes", "24", "--gpus", "1"}, folder.path() + "/up",
             {{"TUTTI_HOME", home}});
  // The nodes are on their way then.
  ASSERT_TRUE(support::eventually([&] { return std::filesystem::exists(home + "/processes/controller"); }));
  up.signal(SIGINT);
  EXPECT_EQ(up.wait(), 130);
  const std::string said = read_text(folder.path() + "/up.err");
  EXPECT_TRUE(has(said, "interrupted; what it had started is ended")) << said;
  const auto left = support::processes_naming(home);
  EXPECT_TRUE(left.empty()) << left.size() << " processes outlived it";
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
}

TEST(Up, AControllerThatWasKilledComesBackAndRanksDoNotNotice) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const std::map<std::string, std::string> env{{"TUTTI_HOME", home}};
  const auto tutti = [&](std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = env});
  };
  ASSERT_EQ(tutti({"up", "--nodes", "2", "--gpus", "1"}).exit_code, 0);
  const auto submitted = tutti({"run", "--detach", "--restarts", "0", "--", "sleep", "1000"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  ASSERT_TRUE(support::eventually([&] { return has(tutti({"jobs"}).out, "running"); }));
  for (const pid_t pid : support::processes_naming(home + "/controller")) {
    if (has(read_text("/proc/" + std::to_string(pid) + "/cmdline"), "--ready-fd")) ::kill(pid, SIGKILL);
  }
  ASSERT_TRUE(support::eventually([&] { return tutti({"status"}).exit_code != 0; }));
  const auto back = tutti({"up"});
  EXPECT_EQ(back.exit_code, 0) << back.err;
  EXPECT_TRUE(has(back.out, "is back at")) << back.out;
  const auto jobs = tutti({"jobs", "--json"});
  EXPECT_TRUE(has(jobs.out, "\"running\"")) << jobs.out;
  EXPECT_TRUE(has(jobs.out, "\"attempt\":0")) << jobs.out;
  EXPECT_TRUE(has(tutti({"down"}).err, "1 job is unfinished"));
}

// Ranks have working folders of their own.
TEST(Up, AGatewayComesAlongAndIsBackWhereItWas) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const std::map<std::string, std::string> env{{"TUTTI_HOME", home}};
  const auto tutti = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all{support::tutti_program};
    all.insert(all.end(), words.begin(), words.end());
    const auto done = support::run(all, {.env = env});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done;
  };
  const auto lives = [&](const std::string& address) {
    return support::run({"curl", "-sf", "--max-time", "20", "http://" + address + "/v2/health/live"})
               .exit_code == 0;
  };
  tutti({"up", "--gpus", "1"});
  const std::string address = support::lines_of(read_text(home + "/processes/gateway.address")).front();
  EXPECT_TRUE(lives(address)) << address;
  // A cluster that has all its parts is told as before.
  const auto again = support::run({support::tutti_program, "up"}, {.env = env});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_TRUE(has(again.err, "a local cluster runs already")) << again.err;
  ::kill(std::stoi(read_text(home + "/processes/gateway")), SIGKILL);
  ASSERT_TRUE(support::eventually([&] { return !lives(address); }));
  const auto back = tutti({"up"});
  EXPECT_TRUE(has(back.out, "the gateway was gone and is back at " + address)) << back.out << back.err;
  EXPECT_TRUE(lives(address));
  tutti({"down"});
  EXPECT_FALSE(lives(address));
  tutti({"up", "--gpus", "1"});
  EXPECT_TRUE(lives(address)) << "it is where it was";
  tutti({"down"});
  for (const pid_t pid : support::processes_naming(home)) {
    ADD_FAILURE() << "process " << pid << " outlived `tutti down`";
    ::kill(pid, SIGKILL);
  }
}

TEST(Up, WhatRanksAreToldDoesNotDependOnWhereItWasStarted) {
  const TempFolder folder;
  const std::string tutti = support::tutti_program;
  EXPECT_EQ(
      support::run({"sh", "-c", "cd " + folder.path() + " && TUTTI_HOME=here " + tutti + " up --nodes 1"}, {})
          .exit_code,
      0);
  const std::map<std::string, std::string> env{{"TUTTI_HOME", folder.path() + "/here"}};
  const auto told = support::run(
      {tutti, "run", "--", "sh", "-c", "echo $TUTTI_CHECKPOINT_DIR $TUTTI_VERDICT_FILE"}, {.env = env});
  EXPECT_TRUE(has(told.out, "] " + folder.path() + "/here/checkpoints/")) << told.out << told.err;
  EXPECT_TRUE(has(told.out, " " + folder.path() + "/here/nodes/")) << told.out;
  EXPECT_EQ(support::run({tutti, "down"}, {.env = env}).exit_code, 0);
}

TEST(Up, DownWaitsForWhatIsBeingStarted) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const std::map<std::string, std::string> env{{"TUTTI_HOME", home}};
  for (int round = 0; round < 3; ++round) {
    Process up({support::tutti_program, "up", "--nodes", "2", "--gpus", "1"}, folder.path() + "/up", env);
    ASSERT_TRUE(
        support::eventually([&] { return !support::processes_naming(home + "/controller").empty(); }));
    EXPECT_EQ(support::run({support::tutti_program, "down"}, {.env = env}).exit_code, 0);
    EXPECT_EQ(up.wait(), 0);
    const auto left = support::processes_naming(home);
    EXPECT_TRUE(left.empty()) << left.size() << " processes outlived `tutti down`";
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
  }
}

// What `tutti up` has not made is somebody's.
TEST(Up, InAFolderOfSomebodyNothingIsMadeAndNothingRemoved) {
  const TempFolder folder;
  const std::string file = folder.path() + "/checkpoints/mine";
  std::filesystem::create_directories(folder.path() + "/checkpoints");
  support::write_text(file, "weights");
  const std::map<std::string, std::string> env{{"TUTTI_HOME", folder.path()}};
  const auto clean = support::run({support::tutti_program, "down", "--clean"}, {.env = env});
  EXPECT_EQ(clean.exit_code, 1);
  EXPECT_TRUE(has(clean.err, "nothing is removed")) << clean.err;
  const auto down = support::run({support::tutti_program, "down"}, {.env = env});
  EXPECT_EQ(down.exit_code, 0);
  EXPECT_TRUE(has(down.err, "there is no cluster in " + folder.path())) << down.err;
  const auto up = support::run({support::tutti_program, "up"}, {.env = env});
  EXPECT_EQ(up.exit_code, 1);
  EXPECT_TRUE(has(up.err, "TUTTI_HOME=" + folder.path() + "/tutti")) << up.err;
  EXPECT_EQ(support::run({support::tutti_program, "local", "kill-node", "n1"}, {.env = env}).exit_code, 1);
  EXPECT_EQ(read_text(file), "weights");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 1) << "something was left behind";
}

TEST(Up, CleanRemovesWhatItMadeAndTellsWhatGoesWithIt) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const std::map<std::string, std::string> env{{"TUTTI_HOME", home}};
  const auto tutti = [&](std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = env});
  };
  ASSERT_EQ(tutti({"up", "--gpus", "1"}).exit_code, 0);
  support::write_text(home + "/notes", "mine");
  ASSERT_EQ(tutti({"run", "--", "sh", "-c", "touch $TUTTI_CHECKPOINT_DIR/saved"}).exit_code, 0);
  ASSERT_EQ(tutti({"run", "--detach", "--", "sleep", "1000"}).exit_code, 0);
  const auto clean = tutti({"down", "--clean"});
  EXPECT_EQ(clean.exit_code, 0) << clean.err;
  EXPECT_TRUE(has(clean.err, "1 job is unfinished; it is ended and forgotten")) << clean.err;
  EXPECT_TRUE(has(clean.err, "checkpoints of its jobs in " + home + "/checkpoints are removed")) << clean.err;
  EXPECT_FALSE(std::filesystem::exists(home + "/checkpoints"));
  EXPECT_FALSE(std::filesystem::exists(home + "/controller"));
  EXPECT_EQ(read_text(home + "/notes"), "mine");
  EXPECT_EQ(tutti({"down", "--clean"}).exit_code, 1) << "the home is no longer a cluster's";
}

TEST(Up, CleanLeavesWhatIsMountedBelowAlone) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const auto tutti = [&](std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = {{"TUTTI_HOME", home}}});
  };
  ASSERT_EQ(tutti({"up", "--gpus", "1"}).exit_code, 0);
  ASSERT_EQ(tutti({"down"}).exit_code, 0);
  {
    const support::SmallDisk disk(home + "/checkpoints/disk");
    if (disk.mounted()) {
      support::write_text(home + "/checkpoints/disk/model", "weights");
      const auto refused = tutti({"down", "--clean"});
      EXPECT_EQ(refused.exit_code, 1);
      EXPECT_TRUE(has(refused.err, home + "/checkpoints: something else is mounted in it")) << refused.err;
      EXPECT_EQ(read_text(home + "/checkpoints/disk/model"), "weights");
    }
  }
  EXPECT_EQ(tutti({"down", "--clean"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(home + "/checkpoints"));
}

TEST(Up, ACopyOfAHomeIsNotStartedBesideItAndOneThatWasMovedGoesOn) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const std::string copy = folder.path() + "/copy";
  const std::string moved = folder.path() + "/moved";
  const auto tutti = [](const std::string& in, std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = {{"TUTTI_HOME", in}}});
  };
  const auto up = [&](const std::string& in) { return tutti(in, {"up", "--gpus", "1"}); };
  EXPECT_EQ(up(home).exit_code, 0);
  EXPECT_EQ(tutti(home, {"down"}).exit_code, 0);
  ASSERT_EQ(support::run({"cp", "-r", home, copy}).exit_code, 0);
  const auto refused = up(copy);
  EXPECT_EQ(refused.exit_code, 1) << refused.out << refused.err;
  EXPECT_TRUE(has(refused.err, copy + " is a copy of ")) << refused.err;
  EXPECT_TRUE(support::processes_naming(copy).empty());
  EXPECT_EQ(up(home).exit_code, 0) << "the first is as it was";
  EXPECT_EQ(tutti(home, {"down"}).exit_code, 0);
  std::filesystem::rename(home, moved);
  const auto goes_on = up(moved);
  EXPECT_EQ(goes_on.exit_code, 0) << goes_on.err;
  EXPECT_EQ(tutti(moved, {"down"}).exit_code, 0);
}

TEST(Up, TheVariablesOfAnotherClusterAreForOtherCommands) {
  const TempFolder folder;
  const std::map<std::string, std::string> env{{"TUTTI_HOME", folder.path() + "/home"},
                                               {"TUTTI_ADDR", "127.0.0.1:1"},
                                               {"TUTTI_TOKEN_FILE", folder.path() + "/none"}};
  const auto up = support::run({support::tutti_program, "up", "--gpus", "1"}, {.env = env});
  EXPECT_EQ(up.exit_code, 0) << up.err;
  EXPECT_TRUE(has(up.err, "`unset TUTTI_ADDR TUTTI_TOKEN_FILE`")) << up.err;
  EXPECT_EQ(support::run({support::tutti_program, "local", "kill-node", "n1"}, {.env = env}).exit_code, 0);
  const auto again = support::run({support::tutti_program, "local", "start-node", "n1"}, {.env = env});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(support::run({support::tutti_program, "down"}, {.env = env}).exit_code, 0);
  const auto url = support::run({support::tutti_program, "jobs"}, {.env = {{"TUTTI_ADDR", "http://a:1"}}});
  EXPECT_TRUE(has(url.err, "is a URL, and not HOST:PORT")) << url.err;
}

TEST(Up, AFolderThatCannotBeReadIsNotSaidToHaveNoCluster) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  std::filesystem::create_directories(home);
  ASSERT_EQ(::chmod(home.c_str(), 0), 0);
  const auto jobs =
      support::run({support::tutti_program, "jobs"}, {.env = {{"TUTTI_HOME", home}, {"TUTTI_ADDR", ""}}});
  EXPECT_EQ(jobs.exit_code, 1);
  EXPECT_TRUE(has(jobs.err, "Permission denied")) << jobs.err;
}

// What the controller advises is something that `tutti up` can do.
TEST(Up, OneThatFailsSaysWhoEndedAndWhatCanBeDone) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const std::map<std::string, std::string> env{{"TUTTI_HOME", home}};
  const auto tutti = [&](std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = env});
  };
  ASSERT_EQ(tutti({"up", "--gpus", "1"}).exit_code, 0);
  ASSERT_EQ(tutti({"down"}).exit_code, 0);
  for (const char* part : {"", "-wal", "-shm"}) std::filesystem::remove(home + "/controller/store.db" + part);
  const auto up = tutti({"up", "--gpus", "1"});
  EXPECT_EQ(up.exit_code, 1);
  EXPECT_TRUE(has(up.err, "(" + support::tutti_program + ", pid ")) << up.err;
  EXPECT_TRUE(has(up.err, "was committed")) << up.err;
  EXPECT_TRUE(has(up.err, "start with --accept-older-store")) << up.err;
  EXPECT_TRUE(has(up.err, home + "/logs/controller.log")) << up.err;
  const auto accepted = tutti({"up", "--gpus", "1", "--accept-older-store"});
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_EQ(tutti({"down"}).exit_code, 0);
}

// The controller remembers a node for a while: that is not an agent which has joined.
TEST(Up, ANodeWhoseAgentHasDiedIsNotSaidToBeReady) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  const auto tutti = [&](std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = {{"TUTTI_HOME", home}}});
  };
  ASSERT_EQ(tutti({"up", "--nodes", "2", "--gpus", "1"}).exit_code, 0);
  ASSERT_EQ(tutti({"down"}).exit_code, 0);
  std::filesystem::rename(home + "/nodes/n2", folder.path() + "/n2");
  support::write_text(home + "/nodes/n2", "a file where a folder must be");
  const auto up = tutti({"up", "--nodes", "2", "--gpus", "1"});
  EXPECT_EQ(up.exit_code, 1) << up.out;
  EXPECT_TRUE(has(up.err, "node-n2")) << up.err;
  EXPECT_TRUE(support::processes_naming(home).empty());
}

TEST(Up, WhatFailsLeavesNothingRunning) {
  const TempFolder folder;
  const std::string home = folder.path() + "/home";
  std::filesystem::create_directories(home);
  support::write_text(home + "/tutti-home", "");
  support::write_text(home + "/nodes", "a file where a folder must be");
  const auto up = support::run({support::tutti_program, "up", "--gpus", "1"},
                               {.env = {{"TUTTI_HOME", home}}, .timeout = 120s});
  EXPECT_EQ(up.exit_code, 1) << up.err;
  EXPECT_TRUE(support::processes_naming(home).empty());
}

}  // namespace
}  // namespace tutti
