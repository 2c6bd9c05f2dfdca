#include "base/files/tree.hpp"

#include <stdlib.h>
#include <sys/mount.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace tutti::files {
namespace {

namespace fs = std::filesystem;

struct OpenBelow : testing::Test {
  OpenBelow() {
    std::string path = testing::TempDir() + "tutti-below-XXXXXX";
    root_ = mkdtemp(path.data());
    fs::create_directories(root_ + "/folder/inner/deep");
    fs::create_directory(root_ + "/beside");
    folder_ = FileDescriptor(open((root_ + "/folder").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  ~OpenBelow() override { fs::remove_all(root_); }
  // 0, or why not.
  int open_it(const std::string& name) const {
    errno = 0;
    const FileDescriptor found = open_below(folder_, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return found.valid() ? 0 : errno;
  }

  std::string root_;
  FileDescriptor folder_;
};

TEST_F(OpenBelow, OneNameOfTheFolderThatIsHeldIsOpened) {
  EXPECT_EQ(open_it("inner"), 0);
  EXPECT_EQ(open_it("absent"), ENOENT);
  fs::rename(root_ + "/folder", root_ + "/moved");
  EXPECT_EQ(open_it("inner"), 0);
}

TEST_F(OpenBelow, NoNameLeadsElsewhere) {
  for (const char* name : {"", ".", "..", "../beside", "/", "inner/deep"})
    EXPECT_EQ(open_it(name), EINVAL) << name;
  fs::create_directory_symlink(root_ + "/beside", root_ + "/folder/link");
  fs::create_directory_symlink("inner", root_ + "/folder/near");
  for (const char* name : {"link", "near"}) {
    const int why = open_it(name);
    EXPECT_TRUE(why == ELOOP || why == ENOTDIR) << name;
  }
}

TEST_F(OpenBelow, AnotherDiskIsNotEntered) {
  const std::string disk = root_ + "/folder/inner";
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "needs the right to mount";
  EXPECT_EQ(open_it("inner"), EXDEV);
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace tutti::files
