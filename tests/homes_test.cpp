// A home that is not what its notes say: a copy of another one, one with parts that were started by hand, one
// that is shared with another pid namespace. Nothing of somebody else is ended, and nothing removed.
#include <signal.h>
#include <sys/mount.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"
#include "support/stalled_disk.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::PartsCluster;
using support::TestCluster;

constexpr const char* mark = "/tutti-home";

void expect_untouched(const support::Cluster& cluster, const std::string& id,
                      const std::vector<pid_t>& ranks) {
  const auto job = cluster.job(id);
  EXPECT_EQ(job.value("state", ""), "running") << job;
  EXPECT_EQ(job.value("attempt", -1), 0) << job;
  for (const pid_t pid : ranks) EXPECT_EQ(::kill(pid, 0), 0) << "rank process " << pid << " was ended";
}

TEST(Homes, ACommandInACopyEndsNothingOfTheOriginal) {
  const TestCluster cluster(2, 1);
  const std::string id = cluster.submit({"--nodes", "2", "--gpus-per-rank", "1"}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  auto ranks = cluster.ranks_on("n1");
  for (const pid_t pid : cluster.ranks_on("n2")) ranks.push_back(pid);
  ASSERT_GE(ranks.size(), 2U);
  ranks.push_back(cluster.controller_pid());
  ranks.push_back(cluster.agent_pid("n1"));
  ranks.push_back(cluster.agent_pid("n2"));
  const std::string copy = cluster.file("copy");
  ASSERT_EQ(support::run({"cp", "-a", cluster.home(), copy}).exit_code, 0);
  const auto in_copy = [&](std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return support::run(words, {.env = {{"TUTTI_HOME", copy}}});
  };
  const auto killed = in_copy({"local", "kill-node", "n2"});
  EXPECT_EQ(killed.exit_code, 1);
  EXPECT_TRUE(has(killed.err, "a copy")) << killed.err;
  EXPECT_EQ(in_copy({"local", "start-node", "n2"}).exit_code, 1);
  const auto down = in_copy({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(has(down.err, "no cluster runs in " + copy)) << down.err;
  expect_untouched(cluster, id, ranks);
  EXPECT_EQ(in_copy({"down", "--clean"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(copy + "/controller"));
  expect_untouched(cluster, id, ranks);
}

// What a disk does after an error.
class ReadOnlyView {
 public:
  explicit ReadOnlyView(std::string folder) : folder_(std::move(folder)) {
    mounted_ = ::mount(folder_.c_str(), folder_.c_str(), nullptr, MS_BIND, nullptr) == 0;
    read_only_ = mounted_ &&
                 ::mount(nullptr, folder_.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }
  ReadOnlyView(const ReadOnlyView&) = delete;
  ReadOnlyView& operator=(const ReadOnlyView&) = delete;
  ~ReadOnlyView() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  bool there() const { return read_only_; }

 private:
  std::string folder_;
  bool mounted_ = false;
  bool read_only_ = false;
};

TEST(Homes, AClusterInAHomeThatCanOnlyBeReadIsEnded) {
  const TestCluster cluster(1, 1);
  const std::string id = cluster.submit({}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  auto processes = cluster.ranks_on("n1");
  processes.push_back(cluster.controller_pid());
  processes.push_back(cluster.agent_pid("n1"));
  const ReadOnlyView view(cluster.home());
  if (!view.there()) GTEST_SKIP() << "needs root, and the right to mount";
  const auto down = cluster.tutti({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(has(down.err, "could not be written down in " + cluster.home())) << down.err;
  for (const pid_t pid : processes)
    EXPECT_TRUE(eventually([&] { return ::kill(pid, 0) != 0; })) << "process " << pid << " goes on";
}

// All of the disk, or where the processes are noted.
TEST(Homes, AClusterInAHomeThatCannotBeReadIsEndedAsFarAsItIsFound) {
  for (const char* part : {"", "/processes"}) {
    SCOPED_TRACE(part);
    const TestCluster cluster(2, 1);
    const TestCluster neighbour(1, 1);
    const std::string id = cluster.submit({"--nodes", "2", "--gpus-per-rank", "1"}, "exec sleep 1000");
    ASSERT_TRUE(cluster.becomes(id, "running"));
    std::vector<pid_t> processes{cluster.controller_pid(), cluster.agent_pid("n1"), cluster.agent_pid("n2")};
    for (const char* node : {"n1", "n2"})
      for (const pid_t pid : cluster.ranks_on(node)) processes.push_back(pid);
    ASSERT_GE(processes.size(), 5U);
    support::StalledDisk disk(cluster.home() + part);
    if (!disk.mounted()) GTEST_SKIP() << "needs root, and the right to mount";
    disk.fail();
    const auto down = cluster.tutti({"down"});
    EXPECT_EQ(down.exit_code, 1) << down.err;
    EXPECT_TRUE(has(down.err, "controller " + std::to_string(processes.front()))) << down.err;
    EXPECT_TRUE(has(down.err, cluster.home() + part + ": ")) << "what could not be read: " << down.err;
    for (const pid_t pid : processes)
      EXPECT_TRUE(eventually([&] { return ::kill(pid, 0) != 0; })) << "process " << pid << " goes on";
    const auto again = cluster.tutti({"down"});
    EXPECT_EQ(again.exit_code, 1) << again.err;
    EXPECT_TRUE(has(again.err, "no process of a cluster was found")) << again.err;
    EXPECT_EQ(neighbour.run({}, "true").exit_code, 0);
  }
}

// What their shims hold open takes the mark all the same: it was a planned stop, and the job goes on.
TEST(Homes, RanksThatAreEndedWithTheirFoldersOutOfSightHaveFailedNothing) {
  const TestCluster cluster(1, 1);
  const std::string id = cluster.submit({"--restarts", "0"}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  {
    support::StalledDisk disk(cluster.home() + "/nodes");
    if (!disk.mounted()) GTEST_SKIP() << "needs root, and the right to mount";
    disk.fail();
    EXPECT_EQ(cluster.tutti({"down"}).exit_code, 1);
  }
  const auto up = cluster.tutti({"up", "--nodes", "1", "--gpus", "1"});
  ASSERT_EQ(up.exit_code, 0) << up.err;
  EXPECT_TRUE(cluster.becomes(id, "running")) << cluster.job(id);
  EXPECT_EQ(cluster.job(id)["attempt"], 1);
}

TEST(Homes, PartsThatWereStartedByHandAreNotEndedThoughTheirFolderCannotBeRead) {
  PartsCluster cluster;
  support::write_text(cluster.home() + mark, "");
  ASSERT_TRUE(cluster.start_agent("n1"));
  const pid_t controller = cluster.controller().pid();
  const pid_t agent = cluster.agent("n1").pid();
  support::StalledDisk disk(cluster.home());
  if (!disk.mounted()) GTEST_SKIP() << "needs root, and the right to mount";
  disk.fail();
  EXPECT_EQ(cluster.tutti({"down"}).exit_code, 1);
  for (const pid_t pid : {controller, agent}) {
    const std::string status = support::read_text("/proc/" + std::to_string(pid) + "/stat");
    EXPECT_TRUE(!status.empty() && !has(status, ") Z ")) << "process " << pid << " was ended";
  }
}

TEST(Homes, PartsThatWereStartedByHandAreNotEndedAndTheirStoreStays) {
  PartsCluster cluster;
  support::write_text(cluster.home() + mark, "");  // as `tutti up` and `tutti down` left it before
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id = cluster.submit({}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const auto ranks = cluster.ranks_on("n1");
  const std::vector<std::vector<std::string>> commands{{"up", "--gpus", "1"}, {"down"}, {"down", "--clean"}};
  for (const auto& words : commands) {
    const auto refused = cluster.tutti(words);
    EXPECT_EQ(refused.exit_code, 1) << words.back();
    EXPECT_TRUE(has(refused.err, "process " + std::to_string(cluster.controller().pid()))) << refused.err;
    EXPECT_TRUE(has(refused.err, "TUTTI_HOME")) << refused.err;
    expect_untouched(cluster, id, ranks);
  }
  // The agent alone is reason enough.
  cluster.kill_controller();
  const auto refused = cluster.tutti({"down", "--clean"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(has(refused.err, "process " + std::to_string(cluster.agent("n1").pid()))) << refused.err;
  EXPECT_TRUE(std::filesystem::exists(cluster.home() + "/controller/store.db"));
  ASSERT_TRUE(cluster.start_controller());
  EXPECT_TRUE(cluster.becomes(id, "running"));
  expect_untouched(cluster, id, ranks);
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
}

// As from a container that has the home on a volume.
TEST(Homes, FromAnotherPidNamespaceNothingIsEnded) {
  const std::vector<std::string> apart{"unshare", "--pid", "--fork", "--mount-proc"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.begin(), apart.begin(), apart.end());
    return words;
  };
  if (support::run(with({"true"})).exit_code != 0) GTEST_SKIP() << "pid namespaces need root";
  const TestCluster cluster(1, 1);
  const std::string id = cluster.submit({}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const auto ranks = cluster.ranks_on("n1");
  const std::vector<std::vector<std::string>> commands{
      {"up", "--nodes", "1"}, {"down"}, {"down", "--clean"}, {"local", "kill-node", "n1"}};
  for (const auto& words : commands) {
    auto command = words;
    command.insert(command.begin(), support::tutti_program);
    const auto refused = support::run(with(command), {.env = {{"TUTTI_HOME", cluster.home()}}});
    EXPECT_EQ(refused.exit_code, 1) << words.front();
    EXPECT_TRUE(has(refused.err, "is not seen from here")) << refused.err;
    EXPECT_TRUE(std::filesystem::exists(cluster.home() + "/processes/controller"));
    expect_untouched(cluster, id, ranks);
  }
}

// Nothing there tells of its cluster any more, which runs on.
TEST(Homes, AClusterWhoseHomeWasRemovedIsEndedAndNoneIsStartedBesideIt) {
  const TestCluster cluster(2, 1);
  const TestCluster neighbour(1, 1);
  const std::string id = cluster.submit({"--nodes", "2", "--gpus-per-rank", "1"}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  std::vector<pid_t> processes{cluster.controller_pid(), cluster.agent_pid("n1"), cluster.agent_pid("n2")};
  for (const char* node : {"n1", "n2"})
    for (const pid_t pid : cluster.ranks_on(node)) processes.push_back(pid);
  ASSERT_GE(processes.size(), 5U);
  // They may be writing there.
  ASSERT_TRUE(eventually([&] {
    std::error_code again;
    std::filesystem::remove_all(cluster.home(), again);
    return !std::filesystem::exists(cluster.home());
  }));
  // Another one of this user, whose name begins with that of the first.
  const auto beside =
      support::run({support::tutti_program, "down"},
                   {.env = {{"TUTTI_HOME", cluster.home().substr(0, cluster.home().size() - 1)}}});
  EXPECT_EQ(beside.exit_code, 0) << beside.err;
  EXPECT_TRUE(has(beside.err, "there is no cluster in")) << beside.err;
  const auto up = cluster.tutti({"up", "--gpus", "1"});
  EXPECT_EQ(up.exit_code, 1) << up.err;
  EXPECT_TRUE(has(up.err, "controller " + std::to_string(processes.front()))) << up.err;
  EXPECT_TRUE(has(up.err, "`tutti down` ends them")) << up.err;
  for (const pid_t pid : processes) EXPECT_EQ(::kill(pid, 0), 0) << "process " << pid << " was ended";
  const auto down = cluster.tutti({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(has(down.err, "agent " + std::to_string(processes[1]))) << down.err;
  for (const pid_t pid : processes)
    EXPECT_TRUE(eventually([&] { return ::kill(pid, 0) != 0; })) << "process " << pid << " goes on";
  EXPECT_EQ(neighbour.run({}, "true").exit_code, 0);
  const auto again = cluster.tutti({"up", "--gpus", "1"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

// Notes of earlier versions say only which process it was; whether it is of this home the locks tell.
TEST(Homes, NotesOfAnEarlierVersionAreUnderstood) {
  const TestCluster cluster(1, 1);
  for (const char* part : {"controller", "node-n1"}) {
    const std::string file = cluster.home() + "/processes/" + part;
    auto lines = support::lines_of(support::read_text(file));
    ASSERT_GT(lines.size(), 2U);
    lines[0] = lines[0].substr(0, lines[0].find(' ', lines[0].find(' ') + 1));
    std::string text;
    for (const auto& line : lines) text += line + "\n";
    support::write_text(file, text);
  }
  const auto up = cluster.tutti({"up"});
  EXPECT_EQ(up.exit_code, 1);
  EXPECT_TRUE(has(up.err, "a local cluster runs already")) << up.err;
  EXPECT_EQ(cluster.tutti({"local", "kill-node", "n1"}).exit_code, 0);
  EXPECT_EQ(cluster.tutti({"local", "start-node", "n1"}).exit_code, 0);
}

}  // namespace
}  // namespace tutti
