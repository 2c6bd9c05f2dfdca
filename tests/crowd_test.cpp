// More than a cluster can carry: what one person asks for must not stop it for the others.
#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::has;
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

TEST(Crowd, NodesAreListedPageByPage) {
  const TestCluster cluster(3, 1);
  EXPECT_EQ(cluster.json({"nodes"}).size(), 3U);
}

}  // namespace
}  // namespace tutti
