#include "base/files/inside.hpp"

#include <unistd.h>

#include <filesystem>

#include <gtest/gtest.h>

namespace tutti::files {
namespace {

TEST(Inside, IsSeenThroughDotsSlashesAndLinks) {
  EXPECT_TRUE(is_inside("/nowhere/a", "/nowhere/a"));
  EXPECT_TRUE(is_inside("/nowhere/a/", "/nowhere/a"));
  EXPECT_TRUE(is_inside("/nowhere/a", "/nowhere/a/"));
  EXPECT_TRUE(is_inside("/nowhere/a/b/../c", "/nowhere/./a"));
  EXPECT_TRUE(is_inside("inside-here", "."));
  EXPECT_FALSE(is_inside("/nowhere/ab", "/nowhere/a"));
  EXPECT_FALSE(is_inside("/nowhere", "/nowhere/a"));
  EXPECT_FALSE(is_inside("/nowhere/a/../b", "/nowhere/a"));
  const std::string folder = testing::TempDir() + "inside_test." + std::to_string(::getpid());
  std::filesystem::create_directories(folder + "/real");
  std::filesystem::create_directory_symlink("real", folder + "/link");
  EXPECT_TRUE(is_inside(folder + "/link/new", folder + "/real"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::files
