#include "node/rank/launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/files/descriptor.hpp"
#include "node/rank/folder_test.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

class Launch : public FolderTest {
 protected:
  // A script in the place of the program: it gets the words `shim FOLDER PLACE`.
  std::string program(const std::string& script) const {
    std::ofstream(path("program")) << "#!/bin/sh\n" << script;
    std::filesystem::permissions(path("program"), std::filesystem::perms::owner_all);
    return path("program");
  }
};

TEST_F(Launch, TheShimGetsItsFolderAndNoDescriptors) {
  // Without close-on-exec, as a careless library would open it.
  const files::FileDescriptor careless(open("/dev/null", O_RDONLY));
  const auto pid =
      start_shim(program("echo \"$1 $2 $3\" > $2/told; (readlink /proc/$$/fd/*; true) >> $2/told"), folder());
  ASSERT_TRUE(pid) << pid.error().text();
  int status = -1;
  waitpid(*pid, &status, 0);
  std::ifstream told(path("told"));
  std::string words;
  std::getline(told, words);
  EXPECT_EQ(words, "shim " + folder() + " " + folder_place(folder() + "/../.."));
  int nothing = 0;
  for (std::string target; std::getline(told, target);) {
    EXPECT_TRUE(target == "/dev/null" || target == path("program")) << target;
    nothing += target == "/dev/null" ? 1 : 0;
  }
  EXPECT_EQ(nothing, 3);
}

TEST_F(Launch, AMissingProgramIsAFailure) { EXPECT_FALSE(start_shim(path("missing"), folder())); }

TEST_F(Launch, APidfdTellsTheEnd) {
  const auto pid = start_shim(program("exit 0"), folder());
  ASSERT_TRUE(pid);
  const auto process = open_pidfd(*pid);
  ASSERT_TRUE(process);
  pollfd event{.fd = process->get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&event, 1, 20'000), 1);
  waitpid(*pid, nullptr, 0);
}

TEST_F(Launch, AStrangerWithTheSamePidIsLeftAlone) {
  const auto status = read_process(getpid());
  ASSERT_TRUE(status);
  EXPECT_TRUE(end_shim({.pid = getpid(), .start_time = status->start_time - 1}, true));
}

}  // namespace
}  // namespace tutti::rank
