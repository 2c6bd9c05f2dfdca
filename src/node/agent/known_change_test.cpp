#include "node/agent/known_change.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

// What was used a moment ago is known; what a disk that does not answer makes of it is
// Hostile.AStalledSharedDiskCostsNoNode (tests/hostile_test.cpp).
TEST(KnownChange, OfAFolderThatIsInUseIsTold) {
  const std::string folder = testing::TempDir() + "tutti-known-change-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/checkpoint") << "x";
  const auto changed = known_change(folder);
  ASSERT_TRUE(changed);
  struct stat status {};
  ASSERT_EQ(::stat(folder.c_str(), &status), 0);
  EXPECT_EQ(*changed, Instant(std::chrono::seconds(status.st_mtim.tv_sec) +
                              std::chrono::nanoseconds(status.st_mtim.tv_nsec)));
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(known_change(folder));
}

TEST(KnownDisk, IsThatOfTheNextFolderAboveThatIsThere) {
  const std::string folder = testing::TempDir() + "tutti-known-disk-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  struct stat status {};
  ASSERT_EQ(::stat(folder.c_str(), &status), 0);
  EXPECT_EQ(known_disk(folder), status.st_dev);
  const std::string below = folder + "/not/made";
  ASSERT_NE(::stat((folder + "/not").c_str(), &status), 0) << "so that the kernel knows";
  // Where the kernel would have to ask, it is not known.
  if (const auto disk = known_disk(below)) {
    EXPECT_EQ(disk, known_disk(folder));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::agent
