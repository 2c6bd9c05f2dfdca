#include "node/rank/limits.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "node/rank/folder_test.hpp"

namespace tutti::rank {
namespace {

class Limits : public FolderTest {
 protected:
  // The limit on data that a process has after it entered.
  static rlim_t data_limit_inside(const RankLimits& limits) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      limits.enter();
      rlimit limit{};
      getrlimit(RLIMIT_DATA, &limit);
      _exit(write(ends[1], &limit, sizeof limit) == sizeof limit ? 0 : 1);
    }
    rlimit limit{};
    EXPECT_EQ(read(ends[0], &limit, sizeof limit), static_cast<ssize_t>(sizeof limit));
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
    return limit.rlim_cur;
  }
};

TEST_F(Limits, WithoutCgroupsTheDataOfAProcessIsLimited) {
  const RankLimits limits({.name = "rank", .cpus = 2, .memory = gib(3)}, path("missing"));
  EXPECT_FALSE(limits.memory_has_cgroup());
  EXPECT_FALSE(limits.cpus_have_cgroup());
  EXPECT_FALSE(limits.memory_limit_reached());
  EXPECT_EQ(data_limit_inside(limits), rlim_t{3} << 30);
}

TEST_F(Limits, NothingIsLimitedThatWasNotAskedFor) {
  const RankLimits limits({.name = "rank", .cpus = 0, .memory = Bytes(0)}, folder());
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
  EXPECT_EQ(data_limit_inside(limits), RLIM_INFINITY);
}

// A folder stands in for the tree of version 2, which the kernel would fill with these files.
TEST_F(Limits, TheUnifiedTreeGetsBothLimits) {
  const std::string cgroup = path("tutti/rank");
  std::filesystem::create_directories(cgroup);
  std::ofstream(path("cgroup.controllers")) << "cpu memory\n";
  for (const char* name : {"memory.max", "cpu.max", "cgroup.procs"})
    std::ofstream(cgroup + "/" + name).flush();
  std::ofstream(cgroup + "/memory.events") << "oom 1\noom_kill 0\n";
  const RankLimits limits({.name = "rank", .cpus = 2, .memory = gib(1)}, folder());
  EXPECT_TRUE(limits.memory_has_cgroup());
  EXPECT_TRUE(limits.cpus_have_cgroup());
  std::string line;
  std::getline(std::ifstream(cgroup + "/memory.max"), line);
  EXPECT_EQ(line, "1073741824");
  std::getline(std::ifstream(cgroup + "/cpu.max"), line);
  EXPECT_EQ(line, "200000 100000");
  EXPECT_EQ(data_limit_inside(limits), RLIM_INFINITY);
  std::getline(std::ifstream(cgroup + "/cgroup.procs"), line);
  EXPECT_EQ(line, "0");
  EXPECT_FALSE(limits.memory_limit_reached());
  std::ofstream(cgroup + "/memory.events") << "oom 1\noom_kill 2\n";
  EXPECT_TRUE(limits.memory_limit_reached());
}

// Of version 1. A rank that has asked for no CPUs is under the same weight as the others all the same: its
// processes may be thousands, each in a session of its own, and its agent is one.
TEST_F(Limits, RanksWeighAsRanksHoweverManyProcessesTheyHave) {
  const std::string cgroup = path("cpu/tutti/rank");
  std::filesystem::create_directories(cgroup);
  std::ofstream(path("cpu/tutti/cpu.shares")).flush();
  std::ofstream(cgroup + "/cgroup.procs").flush();
  const RankLimits limits({.name = "rank", .memory = {}, .processes = {.rank = 100, .ranks = 1'000}},
                          folder());
  EXPECT_FALSE(limits.cpus_have_cgroup());
  std::string line;
  std::getline(std::ifstream(path("cpu/tutti/cpu.shares")), line);
  EXPECT_EQ(line, std::to_string(1024 * std::max(1U, std::thread::hardware_concurrency())));
  EXPECT_EQ(data_limit_inside(limits), RLIM_INFINITY);
  std::getline(std::ifstream(cgroup + "/cgroup.procs"), line);
  EXPECT_EQ(line, "0") << "it is in it";
}

// ---- processes

TEST_F(Limits, OneRankTakesNotAllProcessesOfItsHost) {
  EXPECT_EQ(process_limits(0).rank, 0) << "not known";
  EXPECT_EQ(process_limits(32'768).rank, 4'096);
  EXPECT_EQ(process_limits(32'768).ranks, 28'672);
  EXPECT_EQ(process_limits(204'800).rank, 25'600) << "a host of 200 CPUs";
  EXPECT_EQ(process_limits(4'194'304).rank, 32'768);
  EXPECT_EQ(process_limits(1'000).rank, 500) << "a small container";
  EXPECT_EQ(process_limits(1).rank, 1);
}

TEST_F(Limits, KillsForWantOfMemoryAreCounted) {
  EXPECT_EQ(memory_kills(folder()), -1);
  std::ofstream(path("vmstat")) << "nr_free_pages 7\noom_kill 12\nzone 1\n";
  EXPECT_EQ(memory_kills(folder()), 12);
  std::ofstream(path("vmstat")) << "nr_free_pages 7\n";
  EXPECT_EQ(memory_kills(folder()), -1) << "an old kernel";
}

TEST_F(Limits, TheLeastOfWhatTheHostAllowsCounts) {
  std::filesystem::create_directories(path("proc/sys/kernel"));
  std::filesystem::create_directories(path("cgroup/pids"));
  EXPECT_EQ(host_processes(path("cgroup"), path("proc")), 0);
  std::ofstream(path("proc/sys/kernel/pid_max")) << "32768\n";
  std::ofstream(path("proc/sys/kernel/threads-max")) << "192699\n";
  std::ofstream(path("cgroup/pids.max")) << "max\n";
  EXPECT_EQ(host_processes(path("cgroup"), path("proc")), 32'768);
  std::ofstream(path("cgroup/pids/pids.max")) << "2000\n";
  EXPECT_EQ(host_processes(path("cgroup"), path("proc")), 2'000);
}

TEST_F(Limits, TheProcessesOfARankAreLimited) {
  for (const bool unified : {true, false}) {
    const std::string root = path(unified ? "unified" : "controllers");
    const std::string parent = root + (unified ? "/tutti" : "/pids/tutti");
    std::filesystem::create_directories(parent + "/rank");
    if (unified) std::ofstream(root + "/cgroup.controllers") << "pids\n";
    std::ofstream(parent + "/pids.max").flush();
    std::ofstream(parent + "/rank/pids.max").flush();
    std::ofstream(parent + "/rank/pids.events") << "max 0\n";
    const RankLimits limits(
        {.name = "rank", .cpus = 0, .memory = Bytes(0), .processes = {.rank = 20, .ranks = 70}}, root);
    EXPECT_TRUE(limits.processes_have_cgroup());
    std::string line;
    std::getline(std::ifstream(parent + "/rank/pids.max"), line);
    EXPECT_EQ(line, "20");
    std::getline(std::ifstream(parent + "/pids.max"), line);
    EXPECT_EQ(line, "70") << "for all ranks together";
    EXPECT_FALSE(limits.process_limit_reached());
    std::ofstream(parent + "/rank/pids.events") << "max 3\n";
    EXPECT_TRUE(limits.process_limit_reached());
  }
}

// By the kernel itself.
TEST_F(Limits, AForkBombEndsAtItsLimit) {
  const RankLimits limits({.name = "tutti-test-bomb-" + std::to_string(getpid()),
                           .cpus = 0,
                           .memory = Bytes(0),
                           .processes = {.rank = 20, .ranks = process_limits(host_processes()).ranks}});
  if (!limits.processes_have_cgroup()) GTEST_SKIP() << "this process may not make a cgroup for processes";
  const pid_t rank = fork();
  if (rank == 0) {
    limits.enter();
    int refused = 0;
    std::vector<pid_t> children;
    for (int made = 0; made < 40; ++made) {
      const pid_t child = fork();
      if (child == 0) {
        pause();
        _exit(0);
      }
      if (child < 0) ++refused;
      if (child > 0) children.push_back(child);
    }
    for (const pid_t child : children) kill(child, SIGKILL);
    while (wait(nullptr) > 0) continue;
    _exit(refused);
  }
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_EQ(WEXITSTATUS(status), 21) << "of 40, beside the rank itself";
  EXPECT_TRUE(limits.process_limit_reached());
}

}  // namespace
}  // namespace tutti::rank
