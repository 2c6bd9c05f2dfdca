#include "node/rank/process.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include <gtest/gtest.h>

#include "node/rank/headless_test.hpp"

namespace tutti::rank {
namespace {

SeenProcess seen(pid_t pid) {
  const auto status = read_process(pid);
  return {.pid = pid, .start_time = status ? status->start_time : 0};
}

TEST(Process, ReadsItsOwnStatus) {
  const auto status = read_process(getpid());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, 'R');
  EXPECT_EQ(status->parent, getppid());
  EXPECT_GT(status->start_time, 0U);
}

TEST(Process, SaysHowLongItHasRun) {
  const auto begun = std::chrono::steady_clock::now();
  const auto start_time = read_process(getpid())->start_time;
  const Duration first = since_start(start_time);
  EXPECT_GT(since_start(start_time - 1), first) << "who began earlier has run for longer";
  EXPECT_GE(since_start(start_time) - first, 0s);
  // One after the other: the order of the words of a call is nobody's promise.
  const Duration passed = since_start(start_time) - first;
  EXPECT_LE(passed, std::chrono::steady_clock::now() - begun);
}

TEST(Process, ThereIsNoneWithAnImpossiblePid) { EXPECT_FALSE(read_process(1 << 30)); }

// A child and a grandchild, which live until the pipe is closed.
TEST(Process, BothWaysFindTheSameDescendants) {
  int alive[2];
  int told[2];
  ASSERT_EQ(pipe(alive), 0);
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(alive[1]);
    const pid_t grandchild = fork();
    char end = 0;
    if (grandchild > 0 && write(told[1], &grandchild, sizeof grandchild) != sizeof grandchild) _exit(1);
    if (read(alive[0], &end, 1) != 0) _exit(1);
    if (grandchild > 0) waitpid(grandchild, nullptr, 0);
    _exit(0);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(told[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  const std::vector<pid_t> expected{child, grandchild};
  EXPECT_EQ(descendants_of(getpid()), expected);
  EXPECT_EQ(descendants_by_scan(getpid()), expected);
  for (const int end : {alive[0], alive[1], told[0], told[1]}) close(end);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(descendants_of(getpid()).empty());
}

// Its child has ended when the children of that one are asked for, who are the test's by now.
TEST(Process, WhoPassesToAnotherParentMeanwhileIsNotMissed) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t orphan = fork();
    if (orphan > 0 && write(told[1], &orphan, sizeof orphan) != sizeof orphan) _exit(1);
    for (;;) pause();
  }
  pid_t orphan = 0;
  ASSERT_EQ(read(told[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  const auto children_then_end = [child](pid_t parent, std::vector<pid_t>& children) {
    append_children(parent, children);
    siginfo_t ended{};
    kill(child, SIGKILL);
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  };
  std::vector<pid_t> listed;
  append_children(getpid(), listed);
  if (listed.empty()) GTEST_SKIP() << "this kernel does not list children";
  EXPECT_FALSE(family_of(getpid(), children_then_end).settled);
  const Family later = family_of(getpid());
  EXPECT_EQ(later.running, std::vector{seen(orphan)});
  EXPECT_TRUE(later.settled) << "the ended child is as it was";
  for (const pid_t pid : {child, orphan}) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  for (const int end : told) close(end);
  const Family none = family_of(getpid());
  EXPECT_TRUE(none.running.empty() && none.settled);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Process, WhoHasThePidOfOneThatWasSeenBeforeIsNotSignalled) {
  const pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  const SeenProcess before{.pid = child, .start_time = seen(child).start_time - 1};
  EXPECT_FALSE(signal_process(before, SIGKILL));
  EXPECT_FALSE(read_process(child)->ended());
  EXPECT_TRUE(signal_process(seen(child), SIGKILL));
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(signal_process(before, SIGKILL)) << "it has gone";
}

// It looks as one that has ended and waits to be reaped.
TEST(Process, OneThatItsFirstThreadHasLeftRunsOn) {
  const pid_t leader = fork();
  if (leader == 0) {
    setsid();
    const pid_t headless = fork();
    if (headless == 0) run_on_in_another_thread();
    for (;;) pause();
  }
  std::vector<pid_t> family;
  while (family.empty()) family = descendants_of(leader);
  ASSERT_EQ(family.size(), 1U);
  const pid_t headless = family[0];
  wait_until_headless(headless);
  EXPECT_FALSE(read_process(headless)->ended());
  EXPECT_EQ(descendants_of(leader), family);
  EXPECT_EQ(descendants_by_scan(leader), family);
  EXPECT_EQ(session_of(leader), std::vector{seen(headless)});
  EXPECT_TRUE(signal_process(seen(headless), SIGKILL));
  while (!read_process(headless)->ended()) std::this_thread::yield();
  EXPECT_TRUE(descendants_of(leader).empty());
  EXPECT_TRUE(session_of(leader).empty());
  kill(leader, SIGKILL);
  waitpid(leader, nullptr, 0);
}

}  // namespace
}  // namespace tutti::rank
