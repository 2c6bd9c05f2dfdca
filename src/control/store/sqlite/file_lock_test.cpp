#include "control/store/sqlite/file_lock.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace tutti::store {
namespace {

struct FileLockTest : testing::Test {
  std::string path = testing::TempDir() + "tutti_file_lock_" + std::to_string(getpid());

  void TearDown() override { std::filesystem::remove(path); }
};

TEST_F(FileLockTest, OneHolderAtATime) {
  {
    const auto first = FileLock::take(path);
    ASSERT_TRUE(first.ok()) << first.error().text();
    const auto second = FileLock::take(path);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().message(),
              "another controller (pid " + std::to_string(getpid()) + ") uses this store");
    EXPECT_FALSE(second.error().remedy().empty());
  }
  EXPECT_TRUE(FileLock::take(path).ok());
}

TEST_F(FileLockTest, AHolderWhosePidIsNotWrittenYet) {
  const auto first = FileLock::take(path);
  ASSERT_TRUE(first.ok());
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(FileLock::take(path).error().message(), "another controller uses this store");
}

TEST_F(FileLockTest, AHolderThatLetsGoAMomentLaterIsWaitedFor) {
  auto first = FileLock::take(path);
  ASSERT_TRUE(first.ok());
  std::thread leaving([held = std::move(*first)]() mutable {
    std::this_thread::yield();
    const FileLock gone = std::move(held);
  });
  EXPECT_TRUE(FileLock::take(path).ok());
  leaving.join();
}

TEST_F(FileLockTest, TheFileIsForItsOwnerAlone) {
  const auto lock = FileLock::take(path);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(FileLockTest, AFolderThatIsNotThere) {
  const auto lock = FileLock::take(path + "/absent/lock");
  EXPECT_EQ(lock.error().message(), "the lock file cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace tutti::store
