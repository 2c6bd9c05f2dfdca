// Disks that are not where they were: the shared one for checkpoints is not mounted on a node, and an agent's
// folder is gone while its ranks run.
#include <linux/magic.h>
#include <signal.h>
#include <sys/vfs.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"
#include "support/small_disk.hpp"

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
          "--isolation",
          "none",
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

// A rank that saves something and says ever new things about itself, until the file is there.
std::string saves_until(const std::string& gate, const std::string& then) {
  return "cd $TUTTI_CHECKPOINT_DIR; echo \"from $(cat count 2>/dev/null || echo nothing)\"; echo 5 >count; "
         "i=0; while [ ! -e " +
         gate + " ]; do i=$((i+1)); echo turn $i >$TUTTI_PROGRESS_FILE; sleep 0.1; done; " + then;
}

// What such a rank says comes with what is known of its folder, the look before at the latest.
void wait_until_seen(const PartsCluster& cluster, const std::string& id) {
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
}

PartsOptions with_checkpoints(const std::string& folder) {
  return {.data = "", .controller_flags = {}, .agent_flags = {"--checkpoints", folder}};
}

TEST(Mounts, ANodeWithoutTheSharedDiskBeginsNoJobAnew) {
  const support::TempFolder shared;
  PartsCluster cluster(with_checkpoints(shared.path() + "/t"));
  ASSERT_TRUE(cluster.start_agent("s1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({}, saves_until(gate, "true"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  wait_until_seen(cluster, id);
  // Here the disk would be at another path: what is there is as empty as where nothing is mounted.
  auto words = agent_words(cluster, "s2", cluster.home() + "/nodes/s2");
  words.insert(words.end(), {"--checkpoints", shared.path() + "/not-mounted"});
  const auto second = cluster.start(words, "agent-s2");
  ASSERT_TRUE(cluster.node_becomes("s2", "ready"));
  struct statfs disk {};
  ASSERT_EQ(::statfs(shared.path().c_str(), &disk), 0);
  // Agents go by the table of mounts, in which a folder that was made the root of a process is none.
  const bool has_root = has(read_text("/proc/self/mountinfo"), " / / ");
  if (has_root && (disk.f_type == EXT4_SUPER_MAGIC || disk.f_type == TMPFS_MAGIC)) {
    const std::string wanted =
        "--checkpoints " + shared.path() + "/not-mounted is on a disk of this machine alone";
    EXPECT_TRUE(eventually([&] { return has(read_text(cluster.file("agent-s2.err")), wanted); }))
        << read_text(cluster.file("agent-s2.err"));
  }

  ASSERT_EQ(cluster.tutti({"drain", "s1", "--now"}).exit_code, 0);
  ASSERT_TRUE(eventually([&] {
    return has(cluster.tutti({"show", id}).out, "it is not tried again on 1");
  })) << cluster.tutti({"show", id}).out;
  const std::string told = cluster.job(id).dump();
  EXPECT_TRUE(has(told, "what job " + id + " has saved is not in " + shared.path() + "/not-mounted/"))
      << told;
  EXPECT_TRUE(has(told, "is its disk mounted?")) << told;
  write_text(gate, "");
  ASSERT_EQ(cluster.tutti({"resume", "s1"}).exit_code, 0);
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.log(id, 0), "from 5\n") << "where its disk is";
  EXPECT_FALSE(std::filesystem::exists(shared.path() + "/not-mounted"));
  EXPECT_EQ(cluster.node("s2").value("state", ""), "ready") << "it may have been the job's own doing";
  second->signal(SIGTERM);
  second->wait();
}

TEST(Mounts, ANodeWhoseSharedDiskGoesAwayTakesNoWork) {
  const support::TempFolder shared;
  PartsCluster cluster(with_checkpoints(shared.path()));
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({"--restart-on-failure", "1"}, saves_until(gate, "exit 1"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  wait_until_seen(cluster, id);
  const support::SmallDisk other(shared.path());
  if (other.mounted()) {
    write_text(gate, "");
    EXPECT_TRUE(cluster.node_becomes("n1", "drained"));
    const auto nodes = cluster.tutti({"nodes"});
    EXPECT_TRUE(has(nodes.out, "what job " + id + " has saved is not in")) << nodes.out;
  }
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  if (!other.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
}

TEST(Mounts, AJobThatRemovesWhatItSavedIsHeldAndItsNodeGoesOn) {
  const support::TempFolder shared;
  PartsCluster cluster(with_checkpoints(shared.path()));
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit(
      {"--restart-on-failure", "1"},
      saves_until(gate,
                  "cd /; rm -rf $TUTTI_CHECKPOINT_DIR "
                  "$(dirname $TUTTI_CHECKPOINT_DIR)/.begun/$TUTTI_JOB; exit $((1 - TUTTI_ATTEMPT))"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  wait_until_seen(cluster, id);
  write_text(gate, "");
  ASSERT_TRUE(cluster.becomes(id, "held"));
  EXPECT_TRUE(has(cluster.tutti({"show", id}).out, "what job " + id + " has saved is not in"));
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0) << "nobody else pays";
  EXPECT_EQ(cluster.node("n1").value("state", ""), "ready");
  EXPECT_FALSE(has(cluster.tutti({"nodes"}).out, "REASON"));
  EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
}

TEST(Mounts, AJobThatMovesItsFolderAwayWhileItRunsHasANewOneTheNextTime) {
  const support::TempFolder shared;
  PartsCluster cluster(with_checkpoints(shared.path()));
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit(
      {"--restart-on-failure", "1"}, saves_until(gate, "mv $TUTTI_CHECKPOINT_DIR " + cluster.file("moved") +
                                                           " && echo 6 >count; exit $((1 - TUTTI_ATTEMPT))"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  wait_until_seen(cluster, id);
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(read_text(cluster.file("moved/count")), "6\n");
  const auto last = cluster.tutti({"logs", id});
  EXPECT_TRUE(has(last.out, "from nothing")) << last.out;
  EXPECT_EQ(cluster.node("n1").value("state", ""), "ready");
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

// Removed, or replaced by an older copy of it: nothing there tells of the ranks that run on.
TEST(Mounts, AnAgentWhoseFolderWasRemovedUnderItsRanksDoesNotBeginAnew) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string folder = cluster.home() + "/nodes/n1";
  const std::string id =
      cluster.submit({"--gpus", "1"}, "echo >" + cluster.file("began") + "; exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(cluster.file("began")); }));
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  const std::string shim = read_text(folder + "/ranks/" + id + ".0.0/shim");
  const std::string pid = shim.substr(0, shim.find(' '));
  ASSERT_FALSE(pid.empty());
  const std::string copy = cluster.file("copy");
  ASSERT_EQ(support::run({"cp", "-a", folder, copy}).exit_code, 0);
  std::filesystem::remove_all(copy + "/ranks");  // it is from before that
  std::filesystem::remove_all(folder);
  for (const bool replaced : {false, true}) {
    if (replaced) std::filesystem::rename(copy, folder);
    const auto refused = cluster.tutti(agent_words(cluster, "n1", folder));
    EXPECT_EQ(refused.exit_code, 1) << refused.err;
    EXPECT_TRUE(has(refused.err, "this is not their folder: it was removed")) << refused.err;
    EXPECT_TRUE(has(refused.err, "`kill " + pid + "`")) << refused.err;
    EXPECT_EQ(::kill(std::stoi(pid), 0), 0) << "a person decides";
  }
  EXPECT_EQ(::kill(std::stoi(pid), SIGTERM), 0);
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); })) << "as it was told";
}

// The name of a node is in those of the cgroups of its ranks; whose they are its folder tells.
TEST(Mounts, WhatIsLeftOfRanksEndsAlsoWhereTheirNodeIsCalledOtherwise) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string folder = cluster.home() + "/nodes/n1";
  const std::string began = cluster.file("began");
  // In a session of its own, where the end of its shim does not reach it.
  const std::string id = cluster.submit(
      {}, "setsid sleep 1000 & echo $! >" + began + ".new; mv " + began + ".new " + began + "; wait");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(began); }));
  const pid_t left = std::stoi(read_text(began));
  const bool held = has(read_text("/proc/" + std::to_string(left) + "/cgroup"), "/tutti/tutti-n1-");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_EQ(::kill(std::stoi(read_text(folder + "/ranks/" + id + ".0.0/shim")), SIGKILL), 0);
  if (!held) {
    ::kill(left, SIGKILL);
    GTEST_SKIP() << "no cgroup can be made here";
  }
  const auto renamed = cluster.start(agent_words(cluster, "n9", folder), "agent-n9");
  EXPECT_TRUE(cluster.node_becomes("n9", "ready"));
  EXPECT_TRUE(eventually([&] { return ::kill(left, 0) != 0; })) << read_text(cluster.file("agent-n9.err"));
  ::kill(left, SIGKILL);
  renamed->signal(SIGTERM);
  renamed->wait();
}

// As after a change of the machine's name, which is in the name of the folder.
TEST(Mounts, AnAgentSaysThatRanksOfAnotherFolderHaveNoAgent) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id = cluster.submit({"--gpus-per-rank", "8", "--restarts", "0"}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  ASSERT_TRUE(cluster.start_agent("n2"));
  const std::string other = cluster.submit({"--gpus-per-rank", "8", "--restarts", "0"}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(other, "running"));
  for (const char* node : {"n1", "n2"}) {
    cluster.agent(node).signal(SIGKILL);
    cluster.agent(node).wait();
  }
  ASSERT_TRUE(cluster.start_agent("n3"));
  const auto told = [&](const std::string& node, const std::string& job) {
    const std::string home = cluster.home() + "/nodes/" + node;
    const std::string shim = read_text(home + "/ranks/" + job + ".0.0/shim");
    // Whoever obeys it ends nobody else's ranks.
    return "Start their agent (`--data " + home + "`), or end them (`kill " + shim.substr(0, shim.find(' ')) +
           "`)";
  };
  EXPECT_TRUE(eventually([&] {
    const std::string log = read_text(cluster.file("agent-n3.err"));
    return has(log, told("n1", id)) && has(log, told("n2", other));
  })) << read_text(cluster.file("agent-n3.err"));
  EXPECT_FALSE(has(read_text(cluster.file("agent-n2.err")), told("n1", id))) << "its agent lived then";
  // They may have been lost meanwhile: then they have ended already.
  for (const std::string& job : {id, other}) cluster.tutti({"cancel", "--now", job});
  for (const char* node : {"n1", "n2"}) {
    ASSERT_TRUE(cluster.start_agent(node));
    EXPECT_TRUE(eventually([&] { return cluster.ranks_on(node).empty(); }));
  }
}

}  // namespace
}  // namespace tutti
