#include "node/rank/hold.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "node/rank/headless_test.hpp"

namespace tutti::rank {
namespace {

TEST(Hold, AChildIsUnderItFromItsFirstMomentOn) {
  const Hold hold("tutti-hold-test-" + std::to_string(getpid()));
  if (!hold.make()) GTEST_SKIP() << "no cgroup can be made here";
  EXPECT_TRUE(hold.empty());
  int begun[2];
  ASSERT_EQ(pipe(begun), 0);
  const auto [pid, held] = hold.fork_under();
  if (pid == 0) {
    if (!held || write(begun[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  ASSERT_GT(pid, 0);
  close(begun[1]);
  char byte = 0;
  EXPECT_EQ(read(begun[0], &byte, 1), 1) << "it is not held";
  close(begun[0]);
  EXPECT_FALSE(held) << "the parent stays where it is";
  EXPECT_FALSE(hold.empty());
  EXPECT_FALSE(hold.remove()) << "it holds somebody";
  hold.kill();
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(hold.empty());
  EXPECT_TRUE(hold.remove());
}

// A job that may make cgroups makes one in its own, goes there and freezes it.
TEST(Hold, CgroupsInsideItAreEmptiedAndRemovedWithIt) {
  const Hold hold("tutti-hold-nested-" + std::to_string(getpid()));
  if (!hold.make()) GTEST_SKIP() << "no cgroup can be made here";
  const std::string inside = hold.folder() + "/a/b";
  int begun[2];
  ASSERT_EQ(pipe(begun), 0);
  const auto [pid, held] = hold.fork_under();
  if (pid == 0) {
    std::filesystem::create_directories(inside);
    std::ofstream(inside + "/cgroup.procs") << "0" << std::flush;
    if (write(begun[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  ASSERT_GT(pid, 0);
  close(begun[1]);
  char byte = 0;
  EXPECT_EQ(read(begun[0], &byte, 1), 1);
  close(begun[0]);
  EXPECT_TRUE(std::filesystem::exists(inside)) << "the child could not make it";
  EXPECT_FALSE(hold.empty()) << "somebody is in it, further down";
  EXPECT_FALSE(hold.remove());
  for (const char* freezer : {"/freezer.state", "/cgroup.freeze"}) {
    if (std::filesystem::exists(inside + freezer))
      std::ofstream(inside + freezer) << (freezer[1] == 'f' ? "FROZEN" : "1") << std::flush;
  }
  hold.kill();
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(hold.empty());
  EXPECT_TRUE(hold.remove());
  EXPECT_FALSE(std::filesystem::exists(hold.folder()));
}

// The kernel's own kill of a cgroup passes it by.
TEST(Hold, AProcessThatItsFirstThreadHasLeftIsKilled) {
  const Hold hold("tutti-hold-headless-" + std::to_string(getpid()));
  if (!hold.make()) GTEST_SKIP() << "no cgroup can be made here";
  const auto [pid, held] = hold.fork_under();
  if (pid == 0) run_on_in_another_thread();
  ASSERT_GT(pid, 0);
  wait_until_headless(pid);
  EXPECT_FALSE(hold.empty());
  hold.kill();
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!hold.empty() && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
  EXPECT_TRUE(hold.empty());
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(hold.remove());
}

// Files that may be opened from now on: so many more than there are.
class FewFiles {
 public:
  explicit FewFiles(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(STDERR_FILENO);
    close(next);
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next + more), .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

bool is_frozen(const std::string& cgroup) {
  for (const auto& [file, frozen] : {std::pair("/freezer.state", "FR"), std::pair("/cgroup.freeze", "1")}) {
    std::string state;
    if (std::ifstream(cgroup + file) >> state && state.starts_with(frozen)) return true;
  }
  return false;
}

// The descriptor that the kernel kills with is taken by somebody else, then the next one, and so on.
TEST(Hold, WithoutAFileToOpenNobodyStaysFrozenAndNobodyIsTakenForGone) {
  const Hold hold("tutti-hold-files-" + std::to_string(getpid()));
  if (!hold.make()) GTEST_SKIP() << "no cgroup can be made here";
  const auto [pid, held] = hold.fork_under();
  if (pid == 0)
    for (;;) pause();
  ASSERT_GT(pid, 0);
  int status = 0;
  for (int more = 0; more < 4; ++more) {
    bool empty = false;
    {
      const FewFiles few(more);
      hold.kill();
      empty = hold.empty();
    }
    if (more == 0) {
      EXPECT_FALSE(empty) << "it lives, and nobody could look";
    }
    EXPECT_FALSE(is_frozen(hold.folder())) << more;
  }
  hold.kill();
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(hold.empty());
  EXPECT_TRUE(hold.remove());
}

TEST(Hold, WithoutANameHoldsNothing) {
  for (const char* name : {"", ".", "..", "a/b", "../other"}) {
    EXPECT_FALSE(Hold(name).possible()) << name;
    EXPECT_FALSE(Hold(name).exists()) << "it would be everybody's";
  }
}

TEST(Hold, WithoutOneAChildStartsAllTheSame) {
  const Hold none("nobody", "/nowhere");
  EXPECT_FALSE(none.possible());
  const auto [pid, held] = none.fork_under();
  if (pid == 0) _exit(held ? 1 : 7);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace tutti::rank
