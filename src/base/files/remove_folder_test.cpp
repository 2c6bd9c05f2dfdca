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

constexpr uid_t ann = 54'321;
constexpr uid_t ben = 54'323;

void give(const std::string& path, uid_t owner) { EXPECT_EQ(lchown(path.c_str(), owner, owner), 0) << path; }

class RemoveFolderOfUsers : public RemoveFolder {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  // As its owner could have moved it there: she may write to the folder that holds it, or has it.
  std::string folder(const std::string& name, uid_t owner) const {
    std::string path = tree_ + "/" + name;
    EXPECT_TRUE(make_folder(path, 0777));
    file(name + "/file", owner);
    give(path, owner);
    return path;
  }
  void file(const std::string& name, uid_t owner) const {
    ASSERT_TRUE(write_new_file(tree_ + "/" + name, "work"));
    give(tree_ + "/" + name, owner);
  }
};

TEST_F(RemoveFolderOfUsers, WhatIsSomebodyElsesStays) {
  give(tree_, ann);
  folder("hers", ann);
  file("hers/his", ben);  // in a folder of hers she could remove it herself
  const std::string his = folder("hers/team", ben);
  const std::string roots = folder("roots", 0);
  folder("roots/hers", ann);
  ASSERT_TRUE(make_folder(tree_ + "/empty", 0700));
  give(tree_ + "/empty", ben);
  folder("other", ann);
  const auto removed = remove_folder(tree_);
  ASSERT_FALSE(removed);
  EXPECT_NE(removed.error().text().find("is somebody else's (uid "), std::string::npos)
      << removed.error().text();
  EXPECT_TRUE(std::filesystem::exists(his + "/file"));
  EXPECT_TRUE(std::filesystem::exists(roots + "/hers/file"));
  for (const char* gone : {"/hers/file", "/hers/his", "/other", "/empty"})
    EXPECT_FALSE(std::filesystem::exists(tree_ + gone)) << gone;
  std::filesystem::remove_all(his);
  std::filesystem::remove_all(roots);
  EXPECT_TRUE(remove_folder(tree_));
}

TEST_F(RemoveFolderOfUsers, AFolderOfRootsHoldsThoseOfUsersOrItsOwnAlone) {
  folder("hers", ann);
  const std::string his = folder("hers/team", ben);
  folder("roots", 0);
  folder("roots/his", ben);
  EXPECT_FALSE(remove_folder(tree_, {.of_users = true}));
  EXPECT_TRUE(std::filesystem::exists(his + "/file"));
  EXPECT_FALSE(std::filesystem::exists(tree_ + "/roots"));
  EXPECT_TRUE(remove_folder(tree_)) << "root has unpacked it there, with the owners that it had elsewhere";
}

// What lies too deep is moved up, and is hers there, too.
TEST_F(RemoveFolderOfUsers, WhatIsSomebodyElsesStaysHoweverDeepItLies) {
  folder("hers", ann);
  FileDescriptor at(open((tree_ + "/hers").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int depth = 0; depth < 1030; ++depth) {
    ASSERT_EQ(mkdirat(at.get(), "deeper", 0700), 0);
    at = FileDescriptor(openat(at.get(), "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(fchown(at.get(), ann, ann), 0);
  }
  ASSERT_EQ(mkdirat(at.get(), "his", 0700), 0);
  const FileDescriptor his(openat(at.get(), "his", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  make_file(his.get(), "file");
  ASSERT_EQ(fchown(his.get(), ben, ben), 0);
  for (int time = 0; time < 2; ++time) {
    EXPECT_FALSE(remove_folder(tree_, {.of_users = true}));
    EXPECT_EQ(faccessat(his.get(), "file", F_OK, 0), 0);
  }
}

// The name by which an earlier version moved away what lies too deep.
TEST_F(RemoveFolder, ATreeThatForetellsWhatItsRemovalDoesIsRemoved) {
  ASSERT_TRUE(make_folders(tree_ + "/.tutti-deep-1/x"));
  FileDescriptor at(open(tree_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int depth = 0; depth < 1030; ++depth) {
    ASSERT_EQ(mkdirat(at.get(), "deeper", 0700), 0);
    at = FileDescriptor(openat(at.get(), "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at.valid());
  }
  const auto removed = remove_folder(tree_);
  EXPECT_TRUE(removed) << removed.error().text();
  EXPECT_FALSE(std::filesystem::exists(tree_));
}

TEST_F(RemoveFolder, WhatCannotBeRemovedKeepsNothingElse) {
  for (const std::string name : {"/a", "/b"}) {
    ASSERT_TRUE(make_folders(tree_ + name + "/disk"));
    if (mount("none", (tree_ + name + "/disk").c_str(), "tmpfs", 0, "size=64k") != 0)
      GTEST_SKIP() << "this process may not mount a disk";
    ASSERT_TRUE(make_folders(tree_ + name + "/beside/x"));
  }
  const auto removed = remove_folder(tree_);
  ASSERT_FALSE(removed);
  EXPECT_NE(removed.error().text().find("something else is mounted in it"), std::string::npos);
  for (const std::string name : {"/a", "/b"}) {
    EXPECT_FALSE(std::filesystem::exists(tree_ + name + "/beside")) << name;
    EXPECT_EQ(umount2((tree_ + name + "/disk").c_str(), MNT_DETACH), 0);
  }
  EXPECT_TRUE(remove_folder(tree_));
}

}  // namespace
}  // namespace tutti::files
