// Names and numbers are never used twice: a new store on old folders, a store that has lost its end, two
// agents with one name, two clusters on one host.
#include <signal.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::lines_of;
using support::PartsCluster;
using support::read_text;
using support::until;
using support::write_text;

// The store with all that belongs to it, as somebody moves it who wants to begin anew.
void move_store_away(const PartsCluster& cluster) {
  std::filesystem::create_directory(cluster.file("away"));
  for (const char* part : {"store.db", "store.db-wal", "store.db-shm", "store.db.last"}) {
    std::error_code ignored;
    std::filesystem::rename(cluster.data() + "/" + part, cluster.file("away") + "/" + part, ignored);
  }
}

std::vector<std::string> folders_aside(const PartsCluster& cluster, const std::string& node) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(cluster.home() + "/nodes/" + node)) {
    if (entry.path().filename().string().starts_with("other-cluster-"))
      found.push_back(entry.path().string());
  }
  return found;
}

TEST(Identity, ANewStoreOnOldFoldersSeesNothingOfTheOldJobs) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string ended = cluster.submit({}, "echo old; echo old >$TUTTI_CHECKPOINT_DIR/state");
  ASSERT_EQ(ended, "1");
  ASSERT_EQ(cluster.wait(ended), 0);
  const std::string old_rank =
      cluster.submit({}, "trap 'exit 0' TERM; echo old; while :; do sleep 0.01; done");
  ASSERT_TRUE(cluster.becomes(old_rank, "running"));
  ASSERT_FALSE(cluster.ranks_on("n1").empty());

  cluster.kill_controller();
  move_store_away(cluster);
  ASSERT_TRUE(cluster.start_controller()) << read_text(cluster.file("controller.err"));
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); })) << "it is of no job any more";
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  EXPECT_EQ(folders_aside(cluster, "n1").size(), 1U);

  const std::string count = cluster.file("count");
  for (int job = 1; job <= 2; ++job) {
    const std::string id = cluster.submit(
        {}, "echo ran >>" + count + "; ls $TUTTI_CHECKPOINT_DIR | sed 's/^/left: /'; echo new");
    ASSERT_EQ(id, std::to_string(job)) << "as the old one";
    ASSERT_EQ(cluster.wait(id), 0);
    EXPECT_EQ(cluster.log(id, 0), "new\n");
  }
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.run({"--no-prefix"}, "echo after").out, "after\n");
  EXPECT_EQ(cluster.log("1", 0), "new\n");
  EXPECT_EQ(lines_of(read_text(count)).size(), 2U) << "each ran once";
  EXPECT_TRUE(has(read_text(cluster.file("agent-n1.err")), "is of another cluster"));
}

TEST(Identity, WhoFollowsAJobIsNotToldOfThatOfAnotherCluster) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const auto follower = cluster.start(
      {"run", "--no-prefix", "--", "sh", "-c", "echo old; while :; do sleep 0.01; done"}, "follower");
  ASSERT_TRUE(eventually([&] { return has(read_text(cluster.file("follower")), "old"); }));
  ASSERT_EQ(cluster.state("1"), "running");
  follower->signal(SIGSTOP);
  cluster.kill_controller();
  move_store_away(cluster);
  ASSERT_TRUE(cluster.start_controller()) << read_text(cluster.file("controller.err"));
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  ASSERT_EQ(cluster.submit({}, "true"), "1") << "as the old one";
  ASSERT_EQ(cluster.wait("1"), 0);
  follower->signal(SIGCONT);
  EXPECT_EQ(follower->wait(), 1) << "that job has succeeded, and is another one";
  const std::string said = read_text(cluster.file("follower.err"));
  EXPECT_TRUE(has(said, "this is cluster ")) << said;
}

TEST(Identity, AStoreWithoutItsWriteAheadLogIsRefusedUntilItIsAccepted) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  for (int job = 1; job <= 3; ++job) ASSERT_EQ(cluster.wait(cluster.submit({}, "echo old")), 0);
  cluster.kill_controller();
  const std::string log = cluster.data() + "/store.db-wal";
  ASSERT_TRUE(std::filesystem::exists(log));
  std::filesystem::rename(log, cluster.file("log-away"));
  EXPECT_FALSE(cluster.start_controller());
  const std::string refused = read_text(cluster.file("controller.err"));
  EXPECT_TRUE(has(refused, "was committed")) << refused;
  EXPECT_TRUE(has(refused, "--accept-older-store")) << refused;

  ASSERT_TRUE(cluster.start_controller({"--accept-older-store"}))
      << read_text(cluster.file("controller.err"));
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  EXPECT_EQ(cluster.json({"jobs", "--all"}).size(), 0U) << "they are forgotten";
  const std::string next = cluster.submit({}, "echo new");
  EXPECT_EQ(next, "4") << "their ids are not used again";
  EXPECT_EQ(cluster.wait(next), 0);
  EXPECT_EQ(cluster.log(next, 0), "new\n");
  EXPECT_TRUE(folders_aside(cluster, "n1").empty()) << "it is the same cluster";
}

// The whole folder is an older copy: nothing in it tells, but the agents do.
TEST(Identity, IdsThatAnAgentHasSeenAreNotGivenOutByAnOlderCopy) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  ASSERT_EQ(cluster.wait(cluster.submit({}, "echo old")), 0);
  cluster.controller().signal(SIGTERM);
  cluster.controller().wait();
  std::filesystem::copy(cluster.data(), cluster.file("copy"), std::filesystem::copy_options::recursive);
  ASSERT_TRUE(cluster.start_controller());
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  for (int job = 2; job <= 4; ++job) ASSERT_EQ(cluster.wait(cluster.submit({}, "echo old")), 0);
  cluster.kill_controller();
  std::filesystem::remove_all(cluster.data());
  std::filesystem::rename(cluster.file("copy"), cluster.data());
  ASSERT_TRUE(cluster.start_controller());
  ASSERT_TRUE(
      eventually([&] { return cluster.node("n1").value("agent_pid", 0) == cluster.agent("n1").pid(); }));
  std::string id;
  // The agent may still be on its way: what was submitted before it came is held then, and submitted again.
  ASSERT_TRUE(eventually([&] {
    id = cluster.submit({}, "echo new");
    std::string state;
    const bool decided = eventually([&] {
      state = cluster.state(id);
      return state == "succeeded" || state == "held";
    });
    if (state == "held") cluster.tutti({"cancel", id});
    return decided && state == "succeeded";
  }));
  EXPECT_GE(std::stoi(id), 5);
  EXPECT_EQ(cluster.log(id, 0), "new\n");
}

// The agents' folders are older copies as well: the disk for checkpoints, which they share, tells.
TEST(Identity, IdsUnderWhichSomethingIsSavedAreNotGivenOutByOlderCopies) {
  const support::TempFolder shared;
  support::PartsOptions options;
  options.agent_flags = {"--checkpoints", shared.path()};
  PartsCluster cluster(options);
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string saver = cluster.submit({}, "echo old > $TUTTI_CHECKPOINT_DIR/model");
  ASSERT_EQ(cluster.wait(saver), 0);
  std::string job_folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(shared.path())) {
    if (entry.path().filename() == "model") job_folder = entry.path().parent_path().string();
  }
  ASSERT_EQ(std::filesystem::path(job_folder).filename().string(), saver);
  // As if so many jobs had come since the copies were made, and the last of them had saved something.
  std::filesystem::rename(job_folder, std::filesystem::path(job_folder).parent_path() / "5000");
  cluster.agent("n1").signal(SIGTERM);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  // What the disk tells may come after the agent.
  EXPECT_TRUE(eventually([&] { return std::stoi(cluster.submit({}, "true")) > 5000; }));
}

// ---- two agents with one name

TEST(Identity, ASecondAgentWithTheNameOfTheFirstIsRefused) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({}, until(gate));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const auto second =
      cluster.start({"agent", "--isolation", "none", "--controller", cluster.address(), "--join-token-file",
                     cluster.data() + "/join.token", "--name", "n1", "--data", cluster.file("other-data"),
                     "--fake-gpus", "8xH100", "--log-level", "info"},
                    "second");
  ASSERT_TRUE(eventually([&] { return has(read_text(cluster.file("second.err")), "refuses this agent"); }));
  EXPECT_TRUE(
      eventually([&] { return has(read_text(cluster.file("agent-n1.err")), "wanted to be node n1"); }));
  EXPECT_TRUE(eventually([&] { return has(read_text(cluster.file("controller.err")), "is refused"); }));
  EXPECT_EQ(cluster.agent_pid("n1"), cluster.agent("n1").pid());

  // The controller forgets who is connected, and knows whose name it is.
  cluster.kill_controller();
  ASSERT_TRUE(cluster.start_controller());
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.job(id).value("attempt", -1), 0);
  EXPECT_EQ(cluster.agent_pid("n1"), cluster.agent("n1").pid());

  cluster.agent("n1").signal(SIGTERM);
  cluster.agent("n1").wait();
  EXPECT_TRUE(eventually([&] { return cluster.agent_pid("n1") == second->pid(); })) << "the name is free now";
  second->signal(SIGTERM);
  second->wait();
}

TEST(Identity, ACopyOfAnAgentsFolderIsRefused) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  ASSERT_EQ(cluster.wait(cluster.submit({}, "true")), 0);
  // What the job has left is removed meanwhile.
  ASSERT_TRUE(eventually([&] {
    std::error_code failure;
    std::filesystem::remove_all(cluster.file("copy"));
    std::filesystem::copy(cluster.home() + "/nodes/n1", cluster.file("copy"),
                          std::filesystem::copy_options::recursive, failure);
    return !failure;
  }));
  const auto copy = cluster.start({"agent", "--isolation", "none", "--controller", cluster.address(),
                                   "--join-token-file", cluster.data() + "/join.token", "--name", "n1",
                                   "--data", cluster.file("copy"), "--fake-gpus", "8xH100"},
                                  "copy-agent");
  ASSERT_TRUE(eventually(
      [&] { return has(read_text(cluster.file("copy-agent.err")), "one is a copy of the other"); }));
  EXPECT_EQ(cluster.agent_pid("n1"), cluster.agent("n1").pid());
  EXPECT_EQ(cluster.wait(cluster.submit({}, "true")), 0);
  copy->signal(SIGTERM);
  copy->wait();
}

// ---- two clusters on one host

// Rank 0 listens at the port that it was given, all others come to it and hear whose gang it is.
constexpr const char* meeting = R"(
import os, socket, sys, time
us = sys.argv[1] + " " + os.environ["TUTTI_JOB"] + "." + os.environ["TUTTI_ATTEMPT"]
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.socket()
    server.bind(where)
    server.listen()
    for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
        peer, _ = server.accept()
        peer.sendall(us.encode())
        peer.close()
else:
    deadline = time.time() + 60
    while True:
        try:
            peer = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            if time.time() > deadline: raise
            time.sleep(0.02)
    heard = peer.recv(100).decode()
    if heard != us: sys.exit("met " + heard + " instead of " + us)
)";

TEST(Identity, GangsOfTwoClustersOnOneHostMeetTheirOwn) {
  if (support::run({"/usr/bin/python3", "-c", "import socket"}).exit_code != 0)
    GTEST_SKIP() << "python3 is not installed";
  PartsCluster first;
  PartsCluster second;
  const std::vector<PartsCluster*> clusters{&first, &second};
  for (PartsCluster* cluster : clusters) {
    ASSERT_TRUE(cluster->start_agent("n1"));
    ASSERT_TRUE(cluster->start_agent("n2"));
    write_text(cluster->file("meeting.py"), meeting);
  }
  constexpr int gangs = 24;
  for (int gang = 0; gang < gangs; ++gang) {
    for (PartsCluster* cluster : clusters)
      ASSERT_EQ(
          cluster->submit({"--ranks", "2", "--gpus-per-rank", "0.5", "--restarts", "0"},
                          "exec /usr/bin/python3 " + cluster->file("meeting.py") + " " + cluster->folder()),
          std::to_string(gang + 1));
  }
  for (PartsCluster* cluster : clusters) {
    for (int gang = 1; gang <= gangs; ++gang) {
      const std::string id = std::to_string(gang);
      EXPECT_EQ(cluster->wait(id), 0) << cluster->tutti({"show", id}).out;
    }
  }
}

}  // namespace
}  // namespace tutti
