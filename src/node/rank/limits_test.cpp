#include "node/rank/limits.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

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

}  // namespace
}  // namespace tutti::rank
