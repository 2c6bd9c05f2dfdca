#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"

namespace tutti::files {
namespace {

class RemoveFolder : public testing::Test {
 protected:
  RemoveFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-remove-XXXXXX").string();
    home_ = mkdtemp(path.data());
    tree_ = home_ + "/tree";
    EXPECT_TRUE(make_folder(tree_, 0700));
  }
  ~RemoveFolder() override { EXPECT_TRUE(remove_folder(home_)); }

  std::string home_;
  std::string tree_;
};

void make_file(int folder, const std::string& name) {
  const FileDescriptor file(openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
}

// Far longer than any path may be.
TEST_F(RemoveFolder, ThousandsOfFoldersInEachOther) {
  FileDescriptor at(open(tree_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int depth = 0; depth < 1500; ++depth) {
    make_file(at.get(), "beside");
    ASSERT_EQ(mkdirat(at.get(), "deeper", 0700), 0);
    at = FileDescriptor(openat(at.get(), "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at.valid());
  }
  const auto removed = remove_folder(tree_);
  EXPECT_TRUE(removed) << removed.error().text();
  EXPECT_FALSE(std::filesystem::exists(tree_));
}

TEST_F(RemoveFolder, VeryManyFilesInOne) {
  const FileDescriptor folder(open(tree_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int file = 0; file < 20'000; ++file) make_file(folder.get(), std::to_string(file));
  for (int below = 0; below < 500; ++below) {
    ASSERT_EQ(mkdirat(folder.get(), ("d" + std::to_string(below)).c_str(), 0700), 0);
    make_file(folder.get(), "d" + std::to_string(below) + "/file");
  }
  EXPECT_TRUE(remove_folder(tree_));
  EXPECT_FALSE(std::filesystem::exists(tree_));
}

TEST_F(RemoveFolder, LinksPipesAndFoldersWithoutRights) {
  ASSERT_TRUE(make_folder(home_ + "/kept", 0700));
  const FileDescriptor kept(open((home_ + "/kept").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  make_file(kept.get(), "file");
  ASSERT_EQ(symlink((home_ + "/kept").c_str(), (tree_ + "/link").c_str()), 0);
  ASSERT_EQ(mkfifo((tree_ + "/pipe").c_str(), 0600), 0);
  ASSERT_TRUE(make_folders(tree_ + "/closed/below"));
  ASSERT_EQ(chmod((tree_ + "/closed").c_str(), 0), 0);
  EXPECT_TRUE(remove_folder(tree_));
  EXPECT_FALSE(std::filesystem::exists(tree_));
  EXPECT_TRUE(std::filesystem::exists(home_ + "/kept/file"));
  ASSERT_EQ(symlink((home_ + "/kept").c_str(), tree_.c_str()), 0);
  EXPECT_TRUE(remove_folder(tree_)) << "a link is removed as itself";
  EXPECT_TRUE(std::filesystem::exists(home_ + "/kept/file"));
}

TEST_F(RemoveFolder, WhatIsMountedThereStays) {
  const std::string disk = tree_ + "/disk";
  ASSERT_TRUE(make_folder(disk, 0700));
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "this process may not mount a disk";
  const FileDescriptor root(open(disk.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  make_file(root.get(), "file");
  EXPECT_FALSE(remove_folder(tree_));
  EXPECT_TRUE(std::filesystem::exists(disk + "/file"));
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace tutti::files
