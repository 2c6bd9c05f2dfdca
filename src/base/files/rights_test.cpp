#include "base/files/rights.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/files/files.hpp"

namespace tutti::files {
namespace {

constexpr uid_t nobody = 65534;

class Rights : public testing::Test {
 protected:
  Rights() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-rights-XXXXXX").string();
    home_ = mkdtemp(path.data());
  }
  ~Rights() override { EXPECT_TRUE(remove_folder(home_)); }

  // In a process that is not root, for whom rights do not hold. Its home is its own. "" or what went wrong.
  template <class Work>
  std::string as_nobody(Work work) {
    const bool is_root = geteuid() == 0;
    if (is_root && chown(home_.c_str(), nobody, nobody) != 0) return "chown";
    int report[2];
    if (pipe(report) != 0) return "pipe";
    const pid_t child = fork();
    if (child == 0) {
      const std::string text = is_root && setuid(nobody) != 0 ? "setuid" : work();
      _exit(write(report[1], text.data(), text.size()) < 0 ? 1 : 0);
    }
    close(report[1]);
    char buffer[512];
    const ssize_t length = read(report[0], buffer, sizeof buffer);
    close(report[0]);
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0 ? std::string(buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0))) : "died";
  }

  std::string home_;
};

TEST_F(Rights, AFolderWithoutAnyIsMovedAndRemoved) {
  const auto done = as_nobody([&]() -> std::string {
    const std::string folder = home_ + "/folder";
    const std::string moved = home_ + "/moved/folder";
    for (const auto& made : {folder + "/listed/below", folder + "/closed/below", home_ + "/moved"})
      if (auto result = make_folders(made); !result) return result.error().text();
    for (const auto& [path, mode] :
         {std::pair(folder + "/listed", 0400), {folder + "/closed", 0}, {folder, 0}})
      if (chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) return "chmod";
    if (auto result = move_folder(folder, moved); !result) return result.error().text();
    for (const mode_t mode : {0U, 0400U}) {
      if (!make_folders(moved + "/again") || chmod(moved.c_str(), mode) != 0) return "chmod";
      if (auto result = remove_folder(moved); !result) return result.error().text();
    }
    return std::filesystem::exists(moved) ? "it is still there" : "";
  });
  EXPECT_EQ(done, "");
}

// Deeper than the way back is remembered for: such folders move up first, which writes them.
TEST_F(Rights, ADeepFolderIsRemovedThatMayNotBeWritten) {
  const auto done = as_nobody([&]() -> std::string {
    std::string path = home_ + "/deep";
    if (!make_folder(path, 0700)) return "mkdir";
    for (int level = 0; level < 1100; ++level)
      if (mkdir((path += "/d").c_str(), 0700) != 0) return "mkdir";
    for (std::string above = path; above.size() > home_.size() + 2000; above.resize(above.size() - 2))
      if (chmod(above.c_str(), 0500) != 0) return "chmod";
    if (auto removed = remove_folder(home_ + "/deep"); !removed) return removed.error().text();
    return "";
  });
  EXPECT_EQ(done, "");
}

TEST_F(Rights, ALinkIsNotFollowed) {
  ASSERT_TRUE(make_folder(home_ + "/kept", 0700));
  ASSERT_EQ(chmod((home_ + "/kept").c_str(), 0500), 0);
  ASSERT_EQ(symlink((home_ + "/kept").c_str(), (home_ + "/link").c_str()), 0);
  struct stat status {};
  restore_rights(home_ + "/link");
  ASSERT_EQ(stat((home_ + "/kept").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0500U);
  restore_rights(home_ + "/kept");
  ASSERT_EQ(stat((home_ + "/kept").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  ASSERT_EQ(chmod((home_ + "/kept").c_str(), 0500), 0);
  const FileDescriptor home(open(home_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  restore_rights_in(home, "link");
  ASSERT_EQ(stat((home_ + "/kept").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0500U);
  restore_rights_in(home, "kept");
  ASSERT_EQ(stat((home_ + "/kept").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
}

TEST_F(Rights, WhatIsMovedIsThereOrTold) {
  ASSERT_TRUE(make_folder(home_ + "/kept", 0700));
  EXPECT_TRUE(move_folder(home_ + "/none", home_ + "/other")) << "there is nothing to move";
  EXPECT_FALSE(move_folder(home_ + "/kept", home_ + "/none/other")) << "it is where it was";
}

}  // namespace
}  // namespace tutti::files
