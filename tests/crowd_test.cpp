// More than a cluster can carry: what one person asks for must not stop it for the others.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/files/descriptor.hpp"
#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::has;
using support::PartsCluster;
using support::PartsOptions;
using support::TestCluster;

TEST(Crowd, MoreRanksThanThereAreCpusForAreRefusedAtOnce) {
  const TestCluster cluster(1, 1);
  const auto refused = cluster.tutti({"run", "--detach", "--ranks", "100000", "--", "true"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_TRUE(has(refused.err, "such ranks would fit")) << refused.err;
  EXPECT_EQ(cluster.tutti({"jobs"}).exit_code, 0);
  EXPECT_EQ(cluster.run({"--ranks", "8"}, "true").exit_code, 0) << "a few more than CPUs are fine";
}

TEST(Crowd, MoreSliversOfGpusThanTheCpusCarryAreRefusedAtOnce) {
  const TestCluster cluster(1, 8);
  const auto refused =
      cluster.tutti({"run", "--detach", "--gpus-per-rank", "0.001", "--ranks", "8000", "--", "sleep", "60"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_TRUE(has(refused.err, "ranks that ask for neither CPUs nor whole GPUs share a CPU")) << refused.err;
  EXPECT_EQ(cluster.run({"--gpus-per-rank", "0.25", "--ranks", "8"}, "true").exit_code, 0);
}

// Starts and ends of many at once are not mixed up: a rank that ended well is not taken for one that was
// killed.
TEST(Crowd, ManyQuickRanksEndAsTheyEnded) {
  const TestCluster cluster(3, 8);
  for (int round = 0; round < 4; ++round) {
    const std::string id = cluster.submit({"--gpus-per-rank", "0.01", "--ranks", "48"}, "true");
    EXPECT_EQ(cluster.wait(id), 0);
    EXPECT_EQ(cluster.job(id)["attempt"], 0) << cluster.job(id);
  }
}

constexpr int many = 80;

PartsOptions few_files(const std::string& limit) {
  PartsOptions options;
  options.agent_flags = {"--cpus", "8"};
  options.agent_limit = limit;
  return options;
}

// An array whose elements all wait until somebody writes to a pipe: without a turn of the CPU.
std::string submit_many(const PartsCluster& cluster) {
  EXPECT_EQ(::mkfifo(cluster.file("go").c_str(), 0600), 0);
  return cluster.submit({"--array", "0-" + std::to_string(many - 1)},
                        "ulimit -Sn > " + cluster.file("limit") + "; : > " + cluster.file("began") +
                            ".$TUTTI_ARRAY_INDEX; : < " + cluster.file("go"));
}

bool all_began(const PartsCluster& cluster) {
  return support::eventually([&] {
    int began = 0;
    for (int at = 0; at < many; ++at)
      began += ::access((cluster.file("began") + "." + std::to_string(at)).c_str(), F_OK) == 0 ? 1 : 0;
    return began == many;
  });
}

void let_go_and_expect_all_well(const PartsCluster& cluster, const std::string& array) {
  const files::FileDescriptor writer(::open(cluster.file("go").c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(cluster.tutti({"wait", array, "--array"}).exit_code, 0);
  const auto elements = cluster.json({"jobs", "--array", array, "--limit", std::to_string(many)});
  EXPECT_EQ(elements.size(), static_cast<std::size_t>(many));
  for (const auto& element : elements) EXPECT_EQ(element["attempt"], 0) << element;
  EXPECT_EQ(cluster.node("a")["state"], "ready") << cluster.node("a");
}

TEST(Crowd, AnAgentWatchesMoreRanksThanTheFilesItWasGivenAndHandsThoseOn) {
  PartsCluster cluster(few_files("-Sn 100"));
  ASSERT_TRUE(cluster.start_agent("a"));
  const std::string array = submit_many(cluster);
  EXPECT_TRUE(all_began(cluster)) << "all of them run at once";
  EXPECT_EQ(support::read_text(cluster.file("limit")), "100\n") << "what the agent was started with";
  let_go_and_expect_all_well(cluster, array);
}

// There is no file left to watch it with.
bool waits_for_files(const PartsCluster& cluster, const std::string& job) {
  return support::eventually(
      [&] { return has(cluster.job(job).value("reason", ""), "may not open enough files to watch them"); });
}

TEST(Crowd, RanksBeyondTheFilesOfAnAgentWaitAndNobodyIsToBlame) {
  PartsCluster cluster(few_files("-n 200"));
  ASSERT_TRUE(cluster.start_agent("a"));
  const auto refused = cluster.tutti({"run", "--detach", "--ranks", "100", "--", "true"});
  EXPECT_EQ(refused.exit_code, 2) << "alone it would be more than the node can watch";
  EXPECT_TRUE(has(refused.err, "may not open enough files to watch them")) << refused.err;
  const std::string array = submit_many(cluster);
  const std::string cancelled = cluster.submit({}, "true");
  EXPECT_TRUE(waits_for_files(cluster, cancelled)) << cluster.job(cancelled);
  const auto explained = cluster.tutti({"explain", cancelled});
  EXPECT_TRUE(has(explained.out, "may not open enough files to watch them")) << explained.out;
  EXPECT_EQ(cluster.tutti({"cancel", cancelled}).exit_code, 0) << "one that waits can be cancelled";
  EXPECT_NE(cluster.wait(cancelled), 0);
  let_go_and_expect_all_well(cluster, array);
}

// Half of it would hold what it has while the other half waits, and two such gangs would wait for each other.
TEST(Crowd, AGangThatOneOfItsNodesCannotWatchWaitsAndStartsWhole) {
  PartsCluster cluster(few_files("-n 200"));
  ASSERT_TRUE(cluster.start_agent("a"));
  const std::string array = submit_many(cluster);
  ASSERT_TRUE(waits_for_files(cluster, cluster.submit({}, "true")));
  ASSERT_TRUE(cluster.start_agent("b"));
  const std::string gang = cluster.submit({"--nodes", "2", "--ranks", "2", "--restarts", "0"}, "true");
  EXPECT_TRUE(waits_for_files(cluster, gang)) << cluster.job(gang);
  let_go_and_expect_all_well(cluster, array);
  EXPECT_EQ(cluster.wait(gang), 0) << cluster.job(gang);
  EXPECT_EQ(cluster.job(gang)["attempt"], 0) << cluster.job(gang);
}

// As many as it has, and none would be left for its connection.
TEST(Crowd, AnAgentThatMayOpenFewerFilesThanItHasRanksJoinsAllTheSame) {
  PartsCluster cluster(few_files("-Sn 100"));
  ASSERT_TRUE(cluster.start_agent("a"));
  const std::string array = submit_many(cluster);
  ASSERT_TRUE(all_began(cluster));
  cluster.agent("a").signal(SIGKILL);
  cluster.agent("a").wait();
  cluster.set_agent_limit("-n 100");
  ASSERT_TRUE(cluster.start_agent("a"));
  let_go_and_expect_all_well(cluster, array);
}

TEST(Crowd, NodesAreListedPageByPage) {
  const TestCluster cluster(3, 1);
  EXPECT_EQ(cluster.json({"nodes"}).size(), 3U);
}

}  // namespace
}  // namespace tutti
