// What a cluster did, on record, and played again.
#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::lines_of;
using support::PartsCluster;
using support::read_text;
using support::write_text;

TEST(Jobs, ARecordedClusterCanBeReplayed) {
  support::PartsOptions options;
  const support::TempFolder folder;
  const std::string trace = folder.path() + "/trace.csv";
  options.controller_flags = {"--record", trace};
  PartsCluster cluster(options);
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.wait(cluster.submit({"--gpus", "2", "--gpu-model", "H100"}, "true")), 0);
  // Its line is written after its end is told.
  ASSERT_TRUE(eventually([&] { return lines_of(read_text(trace)).size() == 2; })) << read_text(trace);
  cluster.kill_controller();
  ASSERT_TRUE(eventually([&] { return cluster.start_controller(); }))
      << read_text(cluster.file("controller.err"));
  EXPECT_EQ(cluster.wait(cluster.submit({"--gpus", "4"}, "exit 3")), 3);
  ASSERT_TRUE(eventually([&] { return lines_of(read_text(trace)).size() == 3; })) << read_text(trace);
  const auto lines = lines_of(read_text(trace));
  EXPECT_EQ(lines[0], "job_id,submit_s,gpus,duration_s,gpu_type,user,status,partition");
  EXPECT_NE(lines[1].find(",2,"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find(",H100,"), std::string::npos) << lines[1];
  EXPECT_TRUE(lines[1].ends_with(",succeeded,default")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(",failed,default")) << lines[2];
  // What the controller remembers says the same.
  const auto remembered = cluster.tutti({"record", "--out", folder.path() + "/remembered.csv"});
  EXPECT_EQ(remembered.exit_code, 0) << remembered.err;
  write_text(folder.path() + "/cluster.yaml", "nodes: 1\ngpus: 8\nmodel: H100\n");
  for (const char* name : {"/trace.csv", "/remembered.csv"}) {
    const auto replayed = cluster.tutti(
        {"sim", "run", "--cluster", folder.path() + "/cluster.yaml", "--trace", folder.path() + name});
    EXPECT_EQ(replayed.exit_code, 0) << replayed.err;
    EXPECT_NE(replayed.out.find("2 jobs on 8 GPUs"), std::string::npos) << replayed.out;
  }
}

TEST(Jobs, ARecordingThatCannotBeWrittenIsRefusedAtTheStart) {
  PartsCluster cluster;
  const support::TempFolder folder;
  cluster.kill_controller();
  const auto refused = cluster.tutti({"controller", "--data", cluster.data(), "--listen", "127.0.0.1:0",
                                      "--record", folder.path() + "/no/such/folder.csv"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("--record"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace tutti
