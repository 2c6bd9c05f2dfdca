#include "node/rank/process.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include <gtest/gtest.h>

#include "node/rank/headless_test.hpp"

namespace tutti::rank {
namespace {

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
  EXPECT_EQ(session_of(leader), family);
  EXPECT_EQ(kill(headless, SIGKILL), 0);
  while (!read_process(headless)->ended()) std::this_thread::yield();
  EXPECT_TRUE(descendants_of(leader).empty());
  EXPECT_TRUE(session_of(leader).empty());
  kill(leader, SIGKILL);
  waitpid(leader, nullptr, 0);
}

}  // namespace
}  // namespace tutti::rank
