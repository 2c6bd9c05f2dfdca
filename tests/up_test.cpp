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
