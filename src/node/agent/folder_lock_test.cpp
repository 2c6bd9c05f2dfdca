#include "node/agent/folder_lock.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

// A process that does something, and then lives until it is killed.
class Child {
 public:
  // Returns when it is done with that.
  explicit Child(const std::function<void()>& work) {
    std::array<int, 2> done{};
    if (::pipe(done.data()) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      work();
      if (::write(done[1], "", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(done[1]);
    char byte = 0;
    EXPECT_EQ(::read(done[0], &byte, 1), 1) << "it ended instead";
    ::close(done[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

class FolderLockTest : public testing::Test {
 protected:
  std::string folder_ = testing::TempDir() + "tutti_folder_lock_" + std::to_string(getpid());

  void TearDown() override { std::filesystem::remove_all(folder_); }

  void take() const {
    // It is held until the process ends.
    static const auto lock = FolderLock::take(folder_);
    if (!lock) ::_exit(1);
  }
};

TEST_F(FolderLockTest, OneProcessAtATime) {
  Child holder([&] { take(); });
  const auto refused = FolderLock::take(folder_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), "another agent uses this folder");
  EXPECT_FALSE(refused.error().remedy().empty());
  holder.kill();
  EXPECT_TRUE(FolderLock::take(folder_).ok());
}

// As a shim that is just being started: it has all that its agent has open until it calls exec.
TEST_F(FolderLockTest, IsFreeWhenItsProcessIsKilledThoughAChildOfItLivesOn) {
  std::array<int, 2> pid_of_child{};
  ASSERT_EQ(::pipe(pid_of_child.data()), 0);
  Child holder([&] {
    take();
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    if (::write(pid_of_child[1], &child, sizeof child) != sizeof child) ::_exit(1);
  });
  pid_t child = -1;
  ASSERT_EQ(::read(pid_of_child[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  holder.kill();
  EXPECT_EQ(::kill(child, 0), 0);
  const auto next = FolderLock::take(folder_);
  EXPECT_TRUE(next.ok()) << next.error().text();
  ::kill(child, SIGKILL);
  ::close(pid_of_child[0]);
  ::close(pid_of_child[1]);
}

TEST_F(FolderLockTest, WhoDidNotLetGoInOrderIsKnownToTheNext) {
  Child holder([&] { take(); });
  const pid_t killed = holder.pid();
  holder.kill();
  {
    const auto next = FolderLock::take(folder_);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(next->lost_by(), killed);
  }
  const auto last = FolderLock::take(folder_);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->lost_by(), 0);
}

TEST_F(FolderLockTest, AFolderThatCannotBeMade) { EXPECT_FALSE(FolderLock::take("/dev/null/agent").ok()); }

}  // namespace
}  // namespace tutti::agent
