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

constexpr std::uint64_t most = std::uint64_t{1} << 30;
constexpr std::size_t size = 256 << 10;

class FolderBytes : public testing::Test {
 protected:
  FolderBytes() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-bytes-XXXXXX").string();
    tree_ = mkdtemp(path.data());
  }
  ~FolderBytes() override { EXPECT_TRUE(remove_folder(tree_)); }

  void write(const std::string& name) const {
    ASSERT_TRUE(replace_file(tree_ + "/" + name, std::string(size, 'x')));
  }

  std::string tree_;
};

TEST_F(FolderBytes, AreThoseOfAllThatItHolds) {
  EXPECT_EQ(folder_bytes(tree_ + "/none", most), 0U);
  ASSERT_TRUE(make_folders(tree_ + "/a/b"));
  ASSERT_TRUE(make_folders(tree_ + "/c"));
  for (const char* name : {"file", "a/file", "a/b/file", "c/file"}) write(name);
  EXPECT_GE(folder_bytes(tree_, most), 4 * size);
  EXPECT_LT(folder_bytes(tree_, most), 5 * size);
  EXPECT_EQ(folder_bytes(tree_, 3 * size), 3 * size);
  ASSERT_EQ(symlink("/", (tree_ + "/link").c_str()), 0);
  EXPECT_LT(folder_bytes(tree_, most), 5 * size);
}

// Deeper than a path may be long, with something at the end of the way and beside it.
TEST_F(FolderBytes, AreCountedHoweverDeep) {
  FileDescriptor at(open(tree_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  constexpr int levels = 50;
  const std::string name(200, 'd');
  for (int depth = 0; depth < levels; ++depth) {
    ASSERT_EQ(mkdirat(at.get(), name.c_str(), 0700), 0);
    at = FileDescriptor(openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at.valid());
  }
  const FileDescriptor file(openat(at.get(), "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(posix_fallocate(file.get(), 0, size), 0);
  write("file");
  EXPECT_GE(folder_bytes(tree_, most), 2 * size);
  EXPECT_LT(folder_bytes(tree_, most), 4 * size);
}

TEST_F(FolderBytes, OfMoreThanALookIsWorthAreTheMost) {
  const FileDescriptor folder(open(tree_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int file = 0; file < 5'000; ++file)
    ASSERT_EQ(mknodat(folder.get(), std::to_string(file).c_str(), S_IFREG | 0600, 0), 0);
  EXPECT_EQ(folder_bytes(tree_, most), most);
}

TEST_F(FolderBytes, OfWhatIsMountedThereAreNotCounted) {
  const std::string disk = tree_ + "/disk";
  ASSERT_TRUE(make_folder(disk, 0700));
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "this process may not mount a disk";
  write("disk/file");
  EXPECT_LT(folder_bytes(tree_, most), size);
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace tutti::files
