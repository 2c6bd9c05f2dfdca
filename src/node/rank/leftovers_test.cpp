#include "node/rank/leftovers.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "node/rank/folder_test.hpp"

namespace tutti::rank {
namespace {

// Processes whose words are those of a shim.
struct LeftoversTest : FolderTest {
  LeftoversTest() {
    std::ofstream(path("shim")) << "echo began; read line <wait";
    EXPECT_EQ(mkfifo(path("wait").c_str(), 0600), 0);
  }
  ~LeftoversTest() override {
    for (const pid_t pid : started_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  // `PROGRAM shim RANK`, when it runs.
  pid_t start(const std::string& program, const std::string& rank) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      if (chdir(folder().c_str()) != 0 || dup2(ends[1], STDOUT_FILENO) < 0) _exit(1);
      execl(program.c_str(), program.c_str(), "shim", rank.c_str(), nullptr);
      _exit(1);
    }
    started_.push_back(pid);
    close(ends[1]);
    char letter = 0;
    EXPECT_EQ(read(ends[0], &letter, 1), 1);
    close(ends[0]);
    return pid;
  }

  std::vector<pid_t> started_;
};

// The words of any other process may be out of reach for ever: they are not read.
TEST_F(LeftoversTest, OnlyProcessesOfThisProgramAreAskedForTheirWords) {
  std::filesystem::copy_file("/bin/sh", path("tutti"));
  const std::string ranks = path("ranks");
  const pid_t shim = start(path("tutti"), ranks + "/7.0.0");
  start("/bin/sh", ranks + "/7.0.1");
  const auto found = shims_by_folder(ranks);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.begin()->first, ranks + "/7.0.0");
  EXPECT_EQ(found.begin()->second.pid, shim);
}

// Where `tutti` is a link to the file of a version, shims have that file's name, and those of earlier
// versions another.
TEST_F(LeftoversTest, ShimsOfAnyVersionAreFound) {
  const std::string ranks = path("ranks");
  for (const char* name : {"tutti-0.9", "tutti-0.10", "tutti-shim"}) {
    std::filesystem::copy_file("/bin/sh", path(name));
    start(path(name), ranks + "/7.0.0");
  }
  EXPECT_EQ(shims_by_folder(ranks).size(), 3U);
}

}  // namespace
}  // namespace tutti::rank
