// Disks that take what is asked of them and do not answer, so that not even a kill ends whoever waits: what
// waits there is left behind, and nobody else waits for it.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock/clock.hpp"
#include "net/pki/pki.hpp"
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

// Where the shim of this rank hangs when it puts the end on record, which the rank comes to behind the gate.
struct HungEnd {
  HungEnd(PartsCluster& cluster, const std::vector<std::string>& flags)
      : gate(cluster.file("gate")), id(cluster.submit(flags, until(gate))) {
    folder = cluster.home() + "/nodes/n1/ranks/" + id + ".0.0";
    EXPECT_TRUE(cluster.becomes(id, "running"));
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder + "/exit.room"); }));
    hung.emplace(folder + "/exit.room", HungFile::Answers::nothing);
    if (hung->mounted()) return;
    write_text(gate, "");
    cluster.wait(id);
  }

  std::string gate;
  std::string id;
  std::string folder;
  std::optional<HungFile> hung;
};

// It has done its work before it was to move; that nobody can write that down does not undo it.
TEST(HungDisks, AJobThatEndedWellHasDoneSoThoughItsEndCannotBeWritten) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  HungEnd job(cluster, {"--gpus", "1", "--grace", "200ms"});
  if (!job.hung->mounted()) GTEST_SKIP() << no_mount;
  std::istringstream shim(read_text(job.folder + "/shim"));
  std::string pid;
  shim >> pid;
  write_text(job.gate, "");
  ASSERT_TRUE(eventually([&] { return read_text("/proc/" + pid + "/comm") == "tutti-end-0\n"; }));
  EXPECT_EQ(cluster.tutti({"drain", "--now", "n1"}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(job.id, "succeeded")) << cluster.job(job.id);
  EXPECT_EQ(cluster.job(job.id)["attempt"], 0);
  // The agent has waited for the disk for longer than that.
  EXPECT_LT(cluster.job(job.id).value("finished_at", ""), format_instant(now_on_the_wall() - 5s))
      << "what the disk takes is not its";
  EXPECT_TRUE(cluster.node_becomes("n1", "drained"));
  job.hung.reset();
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); })) << "it ends when it can";
  EXPECT_TRUE(has(read_text(job.folder + "/exit"), "0\n")) << "and has put the end on record";
}

// A rank, or the disk of its folder, keeps its shim where nothing ends it.
TEST(HungDisks, AShimThatNothingEndsIsLeftBehindAndItsJobIsOver) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  HungEnd job(cluster, {"--gpus", "1", "--grace", "200ms"});
  if (!job.hung->mounted()) GTEST_SKIP() << no_mount;
  EXPECT_EQ(cluster.tutti({"cancel", "--now", job.id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(job.id, "cancelled"));
  EXPECT_TRUE(has(read_text(cluster.file("agent-n1.err")), "is left behind"))
      << read_text(cluster.file("agent-n1.err"));
  EXPECT_EQ(cluster.run({"--gpus", "8"}, "true").exit_code, 0) << "its GPU is free again";
  EXPECT_EQ(cluster.node("n1").value("state", ""), "ready");
  job.hung.reset();
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); })) << "it ends when it can";
}

std::string audit_folder_of(const PartsCluster& cluster) {
  for (const auto& entry : std::filesystem::directory_iterator(cluster.data())) {
    if (entry.is_directory() && entry.path().filename().string().starts_with("audit-"))
      return entry.path().string();
  }
  return "";
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

// What leaves the agent's folder passes through another one, and that does not answer: a thread of the agent
// waits there. What is to happen meanwhile is nothing: that the node takes a job for longer than a lease is
// the proof.
TEST(HungDisks, ARemovalThatStandsStillCostsNoNode) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string shipped = cluster.file("shipped");
  std::filesystem::create_directories(shipped);
  write_text(shipped + "/file", "text");
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({"--sync", shipped}, until(gate));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  {
    const support::StalledDisk disk(cluster.home() + "/nodes/n1/removed");
    write_text(gate, "");
    EXPECT_EQ(cluster.wait(id), 0);
    if (!disk.mounted()) GTEST_SKIP() << no_mount;
    if (!eventually([&] { return waits_for_a_disk(cluster.agent("n1").pid()); }, 10s))
      GTEST_SKIP() << "where threads wait cannot be seen";
    EXPECT_EQ(cluster.run({}, "sleep 4").exit_code, 0);
    EXPECT_TRUE(waits_for_a_disk(cluster.agent("n1").pid())) << "all this time";
    EXPECT_EQ(cluster.node("n1").value("state", ""), "ready");
  }
  EXPECT_EQ(cluster.run({"--sync", shipped}, "cat file").out, "[0] text\n");
  const std::string told = read_text(cluster.file("controller.err"));
  EXPECT_FALSE(has(told, "lost") || has(told, "has disconnected")) << told;
}

TEST(HungDisks, AnAgentWhoseDiskDoesNotAnswerEndsWhenItIsAsked) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const support::StalledDisk disk(cluster.home() + "/nodes/n1");
  if (!disk.mounted()) GTEST_SKIP() << no_mount;
  if (!eventually([&] { return waits_for_a_disk(cluster.agent("n1").pid()); }, 10s))
    GTEST_SKIP() << "where threads wait cannot be seen";
  // Whether it waited for what waits there, and says that it does not any more, is told by which thread that
  // is.
  cluster.agent("n1").signal(SIGTERM);
  EXPECT_EQ(cluster.agent("n1").wait(), 0) << read_text(cluster.file("agent-n1.err"));
}

// Whoever reads the log waits there, and the controller does not wait for them.
TEST(HungDisks, AControllerWhoseAuditLogDoesNotAnswerEndsWhenItIsAsked) {
  PartsCluster cluster;
  ASSERT_EQ(cluster.tutti({"queues", "set", "first"}).exit_code, 0);
  ASSERT_TRUE(eventually([&] { return !audit_folder_of(cluster).empty(); }));
  const support::StalledDisk disk(audit_folder_of(cluster));
  if (!disk.mounted()) GTEST_SKIP() << no_mount;
  const auto reader = cluster.start({"audit"}, "reader");
  if (!eventually([&] { return waits_for_a_disk(cluster.controller().pid()); }, 20s))
    GTEST_SKIP() << "where threads wait cannot be seen";
  cluster.controller().signal(SIGTERM);
  EXPECT_EQ(cluster.controller().wait(), 0) << read_text(cluster.file("controller.err"));
  reader->signal(SIGKILL);
  reader->wait();
}

// A controller looks now and then whether somebody has put another one there.
TEST(HungDisks, ACertificateOfSomebodyElseWhoseDiskDoesNotAnswerHoldsUpNoController) {
  const support::TempFolder folder;
  const std::string files = folder.path() + "/certificates";
  std::filesystem::create_directories(files);
  const auto authority = *pki::make_authority("ab12", now_on_the_wall());
  const std::string key = *pki::make_key();
  write_text(files + "/key.pem", key);
  write_text(
      files + "/certificate.pem",
      *pki::sign(authority, *pki::read_request(*pki::make_request(key)),
                 {.name = {.cluster = "ab12", .role = pki::Role::controller}, .addresses = {"127.0.0.1"}},
                 {.now = now_on_the_wall()}));
  write_text(folder.path() + "/ca.pem", authority.certificate);
  support::PartsOptions options;
  options.controller_flags = {"--tls-certificate", files + "/certificate.pem", "--tls-key",
                              files + "/key.pem"};
  PartsCluster cluster(options);
  cluster.env()["TUTTI_CA_FILE"] = folder.path() + "/ca.pem";
  ASSERT_EQ(cluster.tutti({"status"}).exit_code, 0);
  const support::StalledDisk disk(files);
  if (!disk.mounted()) GTEST_SKIP() << no_mount;
  if (!eventually([&] { return waits_for_a_disk(cluster.controller().pid()); }, 20s))
    GTEST_SKIP() << "where threads wait cannot be seen";
  EXPECT_EQ(cluster.tutti({"status"}).exit_code, 0);
}

// Its certificate lies there, and its ranks do not.
TEST(HungDisks, AnAgentWhoseFolderDoesNotAnswerFindsItsControllerAgain) {
  support::PartsOptions options;
  options.controller_flags = {"--tls"};
  PartsCluster cluster(options);
  cluster.env()["TUTTI_CA_FILE"] = cluster.data() + "/ca.pem";
  const auto token = cluster.json({"nodes", "token"});
  const std::string folder = cluster.home() + "/nodes/n1";
  auto agent = cluster.start({"agent", "join", cluster.address(), "--token", token.value("token", ""), "--ca",
                              token.value("ca", ""), "--name", "n1", "--data", folder, "--checkpoints",
                              cluster.home(), "--isolation", "none", "--fake-gpus", "1xH100"},
                             "n1");
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  const std::string id = cluster.submit({"--gpus", "1"}, "sleep 600");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  {
    const support::StalledDisk disk(folder);
    if (!disk.mounted()) GTEST_SKIP() << no_mount;
    cluster.kill_controller();
    ASSERT_TRUE(cluster.start_controller());
    EXPECT_TRUE(eventually([&] { return has(cluster.node("n1").value("reason", ""), "does not answer"); }))
        << read_text(cluster.file("n1.err"));
    EXPECT_EQ(cluster.state(id), "running");
    EXPECT_EQ(cluster.json({"show", id}).value("attempt", -1), 0);
  }
  cluster.tutti({"cancel", "--now", id});
  EXPECT_EQ(cluster.wait(id), 1);
  agent->signal(SIGTERM);
  agent->wait();
}

}  // namespace
}  // namespace tutti
