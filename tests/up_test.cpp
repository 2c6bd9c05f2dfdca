// `tutti up` and `tutti down`, several at once: one cluster at a time, and nothing is left behind.
#include <signal.h>

#include <memory>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

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

}  // namespace
}  // namespace tutti
