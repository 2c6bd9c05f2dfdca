// Disks that are not where they were: the shared one for checkpoints is not mounted on a node, and an agent's
// folder is gone while its ranks run.
#include <signal.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::PartsCluster;
using support::PartsOptions;
using support::read_text;
using support::write_text;

std::vector<std::string> agent_words(const PartsCluster& cluster, const std::string& name,
                                     const std::string& data) {
  return {"agent",
          "--controller",
          cluster.address(),
          "--join-token-file",
          cluster.data() + "/join.token",
          "--name",
          name,
          "--data",
          data,
          "--fake-gpus",
          "8xH100",
          "--log-level",
          "info"};
}

TEST(Mounts, ANodeWithoutTheSharedDiskBeginsNoJobAnew) {
  const support::TempFolder shared;
  PartsCluster cluster(PartsOptions{
      .data = "", .controller_flags = {}, .agent_flags = {"--checkpoints", shared.path() + "/t"}});
  ASSERT_TRUE(cluster.start_agent("s1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit(
      {},
      "cd $TUTTI_CHECKPOINT_DIR; echo \"from $(cat count 2>/dev/null || echo nothing)\"; echo 5 >count; "
      "i=0; while [ ! -e " +
          gate + " ]; do i=$((i+1)); echo turn $i >$TUTTI_PROGRESS_FILE; sleep 0.1; done");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  // What the rank says comes with what is known of its folder, the look before at the latest.
  std::string said;
  for (int look = 0; look < 3; ++look) {
    const std::string before = said;
    ASSERT_TRUE(eventually([&] {
      const std::string shown = cluster.tutti({"show", id}).out;
      const std::size_t at = shown.find("turn ");
      said = at == std::string::npos ? before : shown.substr(at, shown.find('\n', at) - at);
      return said != before;
    })) << said;
  }
  // Here the disk would be at another path: what is there is as empty as where nothing is mounted.
  auto words = agent_words(cluster, "s2", cluster.home() + "/nodes/s2");
  words.insert(words.end(), {"--checkpoints", shared.path() + "/not-mounted"});
  const auto second = cluster.start(words, "agent-s2");
  ASSERT_TRUE(cluster.node_becomes("s2", "ready"));

  ASSERT_EQ(cluster.tutti({"drain", "s1", "--now"}).exit_code, 0);
  ASSERT_TRUE(cluster.node_becomes("s2", "drained"));
  const auto nodes = cluster.tutti({"nodes"});
  EXPECT_TRUE(has(nodes.out, "what job " + id + " has saved is not in " + shared.path() + "/not-mounted/"))
      << nodes.out;
  EXPECT_TRUE(has(nodes.out, "is its disk mounted?")) << nodes.out;
  write_text(gate, "");
  ASSERT_EQ(cluster.tutti({"resume", "s1"}).exit_code, 0);
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.log(id, 0), "from 5\n") << "where its disk is";
  EXPECT_FALSE(std::filesystem::exists(shared.path() + "/not-mounted"));
  second->signal(SIGTERM);
  second->wait();
}

TEST(Mounts, AnAgentWhoseFolderWasMovedAwayUnderItsRanksDoesNotBeginAnew) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id =
      cluster.submit({"--gpus", "1"}, "echo >" + cluster.file("began") + "; exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  // Before its command a rank still makes folders where the agent's was.
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(cluster.file("began")); }));
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  const std::string folder = cluster.home() + "/nodes/n1";
  const std::string away = cluster.home() + "/nodes/away";
  std::filesystem::rename(folder, away);
  const std::string shim = read_text(away + "/ranks/" + id + ".0.0/shim");
  const std::string pid = shim.substr(0, shim.find(' '));
  ASSERT_FALSE(pid.empty());

  const auto refused = cluster.tutti(agent_words(cluster, "n1", folder));
  EXPECT_EQ(refused.exit_code, 1) << refused.err;
  EXPECT_TRUE(has(refused.err, "moved away or unmounted")) << refused.err;
  EXPECT_TRUE(has(refused.err, away + "/ranks/" + id + ".0.0")) << refused.err;
  EXPECT_TRUE(has(refused.err, "`kill " + pid + "`")) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(folder)) << "there is a place to move it back to";

  std::filesystem::rename(away, folder);
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); }));
}

}  // namespace
}  // namespace tutti
