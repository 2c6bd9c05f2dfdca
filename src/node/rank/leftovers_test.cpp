#include "node/rank/leftovers.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "node/rank/folder_test.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

// Processes whose words are those of a shim.
struct LeftoversTest : FolderTest {
  LeftoversTest() {
    std::ofstream(path("shim")) << "echo began; read line <wait";
    EXPECT_EQ(mkfifo(path("wait").c_str(), 0600), 0);
  }
  ~LeftoversTest() override {
    for (const pid_t pid : started_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  static ShimProcess process(pid_t pid) {
    const auto status = read_process(pid);
    return {.pid = pid, .start_time = status ? status->start_time : 0};
  }
  // `PROGRAM shim RANK`, when it runs.
  pid_t start(const std::string& program, const std::string& rank, const Hold* hold = nullptr,
              uid_t user = geteuid()) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = hold != nullptr ? hold->fork_under().pid : fork();
    if (pid == 0) {
      if (chdir(folder().c_str()) != 0 || dup2(ends[1], STDOUT_FILENO) < 0) _exit(1);
      if (user != geteuid() && setresuid(user, user, user) != 0) _exit(1);
      execl(program.c_str(), program.c_str(), "shim", rank.c_str(), nullptr);
      _exit(1);
    }
    started_.push_back(pid);
    close(ends[1]);
    char letter = 0;
    EXPECT_EQ(read(ends[0], &letter, 1), 1);
    close(ends[0]);
    return pid;
  }

  std::vector<pid_t> started_;
};

// The words of any other process may be out of reach for ever: they are not read.
TEST_F(LeftoversTest, OnlyProcessesOfThisProgramAreAskedForTheirWords) {
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  const std::string ranks = path("ranks");
  const pid_t shim = start(path("tutti"), ranks + "/7.0.0");
  start("/bin/sh", ranks + "/7.0.1");
  const auto found = shims_by_folder(ranks);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.begin()->first, ranks + "/7.0.0");
  EXPECT_EQ(found.begin()->second.pid, shim);
}

// Where `tutti` is a link to the file of a version, shims have that file's name, and those of earlier
// versions another.
TEST_F(LeftoversTest, ShimsOfAnyVersionAreFound) {
  const std::string ranks = path("ranks");
  for (const char* name : {"tutti-0.9", "tutti-0.10", "tutti-shim"}) {
    std::filesystem::copy_file("/bin/sh", path(name));
    start(path(name), ranks + "/7.0.0");
  }
  EXPECT_EQ(shims_by_folder(ranks).size(), 3U);
}

// A rank can be called as it likes, and have the words that it likes; even the program can be the same.
TEST_F(LeftoversTest, WhoIsHeldByTheCgroupOfARankIsNoShim) {
  const Hold hold("tutti-leftovers-" + std::to_string(getpid()));
  if (!hold.make()) GTEST_SKIP() << "no cgroup can be made here";
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  const std::string ranks = path("ranks");
  const pid_t forged = start(path("tutti"), ranks + "/7.0.0", &hold);
  const pid_t shim = start(path("tutti"), ranks + "/7.0.1");
  const auto found = shims_by_folder(ranks);
  EXPECT_EQ(found.size(), 1U);
  EXPECT_TRUE(found.contains(ranks + "/7.0.1"));
  EXPECT_TRUE(is_anothers(process(forged), ranks + "/7.0.0"));
  EXPECT_FALSE(is_anothers(process(shim), ranks + "/7.0.1"));
  hold.kill();
  siginfo_t ended{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(forged), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(hold.remove());
}

TEST_F(LeftoversTest, AProgramOfAnotherNameIsNoShim) {
  std::ofstream(path("shim")) << "echo tutti >/proc/$$/comm; echo began; read line <wait";
  const pid_t forged = start("/bin/sh", path("ranks") + "/7.0.0");
  ASSERT_EQ(process_name(forged), "tutti");
  EXPECT_TRUE(shims_by_folder(path("ranks")).empty());
}

// Somebody with a login on the node, outside of any rank: where agents are root's, shims are.
TEST_F(LeftoversTest, AProcessOfSomebodyElseIsNoShim) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  std::filesystem::create_directories(path("x/ranks/7.0.0"));
  for (const char* open : {"", "x", "x/ranks"})
    std::filesystem::permissions(path(open), std::filesystem::perms(0755));
  std::filesystem::permissions(path("wait"), std::filesystem::perms(0666));
  std::ofstream(path("shim")) << "exec 9<x/ranks/7.0.0; echo began; read line <wait";
  const std::string ranks = path("ranks");
  const pid_t forged = start(path("tutti"), ranks + "/7.0.0", nullptr, 54'321);
  const pid_t shim = start(path("tutti"), ranks + "/7.0.1");
  const auto found = shims_by_folder(ranks);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.begin()->second.pid, shim);
  EXPECT_TRUE(is_anothers(process(forged), ranks + "/7.0.0"));
  EXPECT_TRUE(is_anothers(process(forged), path("x/ranks/7.0.0"))) << "it holds that folder open";
  EXPECT_EQ(held_folder(forged, "7.0.0"), "");
  EXPECT_NE(held_folder(shim, "7.0.0"), "");
}

// Ranks live on while the program is replaced by that of another version.
TEST_F(LeftoversTest, AShimWhoseProgramWasReplacedIsFound) {
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  start(path("tutti"), path("ranks") + "/7.0.0");
  std::filesystem::remove(path("tutti"));
  EXPECT_EQ(shims_by_folder(path("ranks")).size(), 1U);
}

// Agents start shims from the program that they are themselves, which has no name of its own there.
TEST_F(LeftoversTest, AShimThatHasNotSaidItsNameYetIsFound) {
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  std::ofstream(path("shim")) << "echo exe >/proc/$$/comm; echo began; read line <wait";
  const pid_t shim = start(path("tutti"), path("ranks") + "/7.0.0");
  ASSERT_EQ(process_name(shim), "exe");
  EXPECT_EQ(shims_by_folder(path("ranks")).size(), 1U);
}

// Without cgroups nothing else tells it from one.
TEST_F(LeftoversTest, WhoDescendsFromAShimOfTheSameAgentIsNone) {
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  std::ofstream(path("forged")) << "echo began; read line <wait";
  std::filesystem::create_directory(path("rank"));
  std::filesystem::rename(path("forged"), path("rank/shim"));
  const std::string ranks = path("ranks");
  std::ofstream(path("shim")) << "(cd rank; exec ../tutti shim " << ranks << "/8.0.0) & wait";
  std::filesystem::create_symlink(path("wait"), path("rank/wait"));
  const pid_t shim = start(path("tutti"), ranks + "/7.0.0");
  const auto found = shims_by_folder(ranks);
  EXPECT_EQ(found.size(), 1U);
  EXPECT_TRUE(found.contains(ranks + "/7.0.0"));
  kill_leftovers(Hold(""), process(shim));
}

// No shim has so many above it: a rank can have thousands, who all call themselves so, and each would be
// asked for all who are above it.
TEST_F(LeftoversTest, WhoHasAHundredProcessesAboveItIsNone) {
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  // One below the other, down to 0, and each of another agent as it says.
  std::ofstream(path("shim"))
      << "n=${1%/ranks/*}; n=${n##*/}; [ $n != 0 ] || { echo began; read line <wait; }; "
      << "./tutti shim " << folder() << "/$((n - 1))/ranks/7.0.0; true";
  const pid_t top = start(path("tutti"), folder() + "/120/ranks/7.0.0");
  const auto found = shims_by_folder(folder());
  EXPECT_TRUE(found.contains(folder() + "/120/ranks/7.0.0"));
  EXPECT_FALSE(found.contains(folder() + "/0/ranks/7.0.0"));
  EXPECT_FALSE(descends_from_shim_below(top, folder()));
  const auto below = descendants_of(top);
  EXPECT_GE(below.size(), 120U);
  EXPECT_TRUE(descends_from_shim_below(below.back(), folder()));
  for (const pid_t pid : below) kill(pid, SIGKILL);
}

// Until it has gone it may hold a device.
TEST_F(LeftoversTest, AProcessOfARankThatIsCalledAsAWriterOfCopiesCounts) {
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  std::ofstream(path("rank")) << "echo tutti-copy >/proc/$$/comm; echo began; read line <wait";
  std::ofstream(path("shim")) << "/bin/sh ./rank & wait";
  const ShimProcess shim = process(start(path("tutti"), path("ranks") + "/7.0.0"));
  const auto family = descendants_of(shim.pid);
  ASSERT_EQ(family.size(), 1U);
  ASSERT_EQ(process_name(family[0]), copy_writer_name);
  kill(shim.pid, SIGSTOP);  // it reaps nobody meanwhile
  EXPECT_FALSE(kill_leftovers(Hold(""), shim));
}

// The folder of a rank is moved with that of its agent, or found by another way.
TEST_F(LeftoversTest, AShimIsThatOfTheFolderThatItHoldsOpen) {
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  for (const char* name : {"ranks/7.0.0", "ranks/7.0.1"}) std::filesystem::create_directories(path(name));
  std::ofstream(path("shim")) << "exec 9<$1; echo began; read line <wait";
  const auto shim = process(start(path("tutti"), path("ranks/7.0.0")));
  EXPECT_FALSE(is_anothers(shim, path("ranks/7.0.0")));
  EXPECT_TRUE(is_anothers(shim, path("ranks/7.0.1")));
  std::filesystem::rename(path("ranks"), path("moved"));
  EXPECT_FALSE(is_anothers(shim, path("moved/7.0.0")));
  std::filesystem::create_directories(path("ranks/copy/7.0.0"));
  EXPECT_TRUE(is_anothers(shim, path("ranks/copy/7.0.0")));
  EXPECT_TRUE(is_anothers(process(getpid()), path("moved/7.0.0")));
}

}  // namespace
}  // namespace tutti::rank
