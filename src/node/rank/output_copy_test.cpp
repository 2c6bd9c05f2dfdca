#include "node/rank/output_copy.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "node/rank/folder_test.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/process.hpp"
#include "node/rank/told_end.hpp"

namespace tutti::rank {
namespace {

constexpr int writer_patience_ms = 20'000;

class OutputCopyTest : public FolderTest {
 protected:
  std::string content() const {
    std::stringstream text;
    text << std::ifstream(path("copy")).rdbuf();
    return text.str();
  }
  // What a disk does to the writer that does not answer.
  void hang() {
    ASSERT_EQ(kill(copy_.writer(), SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(copy_.writer(), &status, WUNTRACED | static_cast<int>(__WCLONE)), copy_.writer());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void wait_for_its_end() {
    while (copy_.is_being_written()) {
      pollfd word{.fd = copy_.words(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(poll(&word, 1, writer_patience_ms), 1);
      copy_.go_on();
    }
  }

  OutputCopy copy_;
};

TEST_F(OutputCopyTest, HasAllWhenItsWriterHasEnded) {
  copy_.start(path("copy"));
  copy_.add("one\n");
  copy_.add("two\n");
  copy_.close();
  wait_for_its_end();
  EXPECT_EQ(content(), "one\ntwo\n");
  EXPECT_EQ(copy_.cut(), "");
  EXPECT_EQ(copy_.take_note(), "");
}

// The shim knows by it that all processes of its rank have gone.
TEST_F(OutputCopyTest, ItsWriterIsNotAmongThoseThatAreWaitedFor) {
  copy_.start(path("copy"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(process_name(copy_.writer()), copy_writer_name);
  const auto writer = read_process(copy_.writer());
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->exit_signal, 0) << "which tells it from processes of ranks";
}

TEST_F(OutputCopyTest, WhatIsNotTakenIsLeftAndTold) {
  copy_.start(path("copy"));
  hang();
  copy_.add(std::string(std::size_t{1} << 20, 'x'));
  EXPECT_TRUE(copy_.is_full());
  EXPECT_LE(copy_.deadline(), OutputCopy::Clock::now() + copy_patience);
  EXPECT_TRUE(copy_.leave());
  EXPECT_FALSE(copy_.is_full()) << "nobody waits for it any more";
  EXPECT_EQ(copy_.cut(), "the copy of its log in " + path("copy") + " is cut: its disk does not answer");
  EXPECT_NE(copy_.take_note(), "");
  EXPECT_EQ(copy_.take_note(), "") << "once";
  wait_for_its_end();
}

// As many as may be left behind, and yet none is: their shim looks after them, and has told how its rank
// ended.
TEST_F(OutputCopyTest, WritersWhoseShimIsThereAreNotLeftBehind) {
  const std::string before = process_name(getpid());
  std::vector<pid_t> writers;
  for (int writer = 0; writer < 64; ++writer) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      set_process_name(copy_writer_name);
      for (;;) pause();
    }
    ASSERT_GT(pid, 0);
    writers.push_back(pid);
  }
  const auto are_named = [&] {
    return std::all_of(writers.begin(), writers.end(),
                       [](pid_t pid) { return process_name(pid) == copy_writer_name; });
  };
  while (!are_named()) std::this_thread::yield();
  tell_end(0);
  copy_.start(path("copy"));
  EXPECT_TRUE(copy_.leave());
  set_process_name(before);
  for (const pid_t pid : writers) {
    kill(pid, SIGKILL);
    EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  }
  wait_for_its_end();
}

// Else no copy on this machine would be left, whose disk does not answer.
TEST_F(OutputCopyTest, WhoIsHeldByTheCgroupOfARankIsNoWriter) {
  const Hold hold("tutti-copies-" + std::to_string(getpid()));
  if (!hold.make()) GTEST_SKIP() << "no cgroup can be made here";
  std::vector<pid_t> forged;
  for (int writer = 0; writer < 64; ++writer) {
    const pid_t pid = hold.fork_under().pid;
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      set_process_name(copy_writer_name);
      for (;;) pause();
    }
    ASSERT_GT(pid, 0);
    forged.push_back(pid);
  }
  const auto are_named = [&] {
    return std::all_of(forged.begin(), forged.end(),
                       [](pid_t pid) { return process_name(pid) == copy_writer_name; });
  };
  while (!are_named()) std::this_thread::yield();
  copy_.start(path("copy"));
  EXPECT_TRUE(copy_.leave());
  hold.kill();
  for (const pid_t pid : forged) EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(hold.remove());
  wait_for_its_end();
}

TEST_F(OutputCopyTest, AWriterThatWasKilledIsTold) {
  copy_.start(path("copy"));
  kill(copy_.writer(), SIGKILL);
  wait_for_its_end();
  EXPECT_NE(copy_.cut().find("was killed"), std::string::npos) << copy_.cut();
  copy_.add("more");
  EXPECT_FALSE(copy_.is_full());
}

TEST_F(OutputCopyTest, WithoutAFileNothingHappens) {
  copy_.add("more");
  copy_.go_on();
  EXPECT_FALSE(copy_.is_full());
  EXPECT_FALSE(copy_.is_being_written());
  EXPECT_EQ(copy_.cut(), "");
}

}  // namespace
}  // namespace tutti::rank
