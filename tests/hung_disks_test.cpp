// Disks that take what is asked of them and do not answer, so that not even a kill ends whoever waits: what
// waits there is left behind, and nobody else waits for it.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "support/cluster.hpp"
#include "support/stalled_disk.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::HungFile;
using support::PartsCluster;
using support::read_text;
using support::until;
using support::write_text;

constexpr const char* no_mount = "this process may not mount a disk";

TEST(HungDisks, ACopyOfTheLogKeepsNoJobFromItsEnd) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string copy = cluster.file("copy");
  write_text(copy, "");
  const HungFile hung(copy, HungFile::Answers::opens);
  if (!hung.mounted()) GTEST_SKIP() << no_mount;
  const std::string id = cluster.submit({"--gpus", "1", "--output", copy}, "echo said");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.job(id)["attempt"], 0);
  const std::string told = "the copy of its log in " + copy + " is cut: its disk does not answer";
  EXPECT_TRUE(has(cluster.tutti({"show", id}).out, told)) << cluster.tutti({"show", id}).out;
  EXPECT_TRUE(cluster.log(id, 0).starts_with("said\n")) << cluster.log(id, 0);
  EXPECT_EQ(cluster.run({"--gpus", "8"}, "true").exit_code, 0) << "its GPU is free again";
}

TEST(HungDisks, ACopyThatCannotEvenBeOpenedKeepsNoJobFromRunning) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string copy = cluster.file("copy");
  write_text(copy, "");
  const HungFile hung(copy, HungFile::Answers::nothing);
  if (!hung.mounted()) GTEST_SKIP() << no_mount;
  const std::string id =
      cluster.submit({"--gpus", "1", "--grace", "200ms", "--output", copy}, "echo said; exec sleep 1000");
  EXPECT_TRUE(eventually([&] { return has(cluster.log(id, 0), "said\n"); }));
  EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  EXPECT_EQ(cluster.run({"--gpus", "8"}, "true").exit_code, 0) << "its GPU is free again";
}

// A rank, or the disk of its folder, keeps its shim where nothing ends it.
TEST(HungDisks, AShimThatNothingEndsIsLeftBehindAndItsJobIsOver) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({"--gpus", "1", "--grace", "200ms"}, until(gate));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const std::string folder = cluster.home() + "/nodes/n1/ranks/" + id + ".0.0";
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder + "/exit.room"); }));
  {
    const HungFile hung(folder + "/exit.room", HungFile::Answers::nothing);
    if (!hung.mounted()) {
      write_text(gate, "");
      cluster.wait(id);
      GTEST_SKIP() << no_mount;
    }
    write_text(gate, "");
    EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
    EXPECT_TRUE(cluster.becomes(id, "cancelled"));
    EXPECT_TRUE(has(read_text(cluster.file("agent-n1.err")), "is left behind"))
        << read_text(cluster.file("agent-n1.err"));
    EXPECT_EQ(cluster.run({"--gpus", "8"}, "true").exit_code, 0) << "its GPU is free again";
    EXPECT_EQ(cluster.node("n1").value("state", ""), "ready");
  }
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); })) << "it ends when it can";
}

// Where a thread of this process waits in the kernel.
bool waits_for_a_disk(pid_t pid) {
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    if (has(read_text(thread.path().string() + "/wchan"), "fuse")) return true;
  }
  return false;
}

TEST(HungDisks, AnAgentWhoseDiskDoesNotAnswerEndsWhenItIsAsked) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const support::StalledDisk disk(cluster.home() + "/nodes/n1");
  if (!disk.mounted()) GTEST_SKIP() << no_mount;
  if (!eventually([&] { return waits_for_a_disk(cluster.agent("n1").pid()); }, 10s))
    GTEST_SKIP() << "where threads wait cannot be seen";
  cluster.agent("n1").signal(SIGTERM);
  EXPECT_TRUE(eventually([&] {
    return has(read_text(cluster.file("agent-n1.err")), "ends without waiting for it");
  })) << read_text(cluster.file("agent-n1.err"));
  EXPECT_EQ(cluster.agent("n1").wait(), 0);
}

}  // namespace
}  // namespace tutti
