#include "node/rank/told_end.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include <gtest/gtest.h>

#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

TEST(ToldEnd, IsReadFromAShimThatLivesAndFromNobodyElse) {
  std::array<int, 2> told{};
  std::array<int, 2> alive{};
  ASSERT_EQ(pipe(told.data()), 0);
  ASSERT_EQ(pipe(alive.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    char word = 0;
    set_process_name(shim_name);
    if (::write(told[1], "s", 1) != 1 || read(alive[0], &word, 1) != 1) _exit(1);
    tell_end(137);
    if (::write(told[1], "e", 1) != 1 || read(alive[0], &word, 1) != 1) _exit(1);
    _exit(0);
  }
  char word = 0;
  ASSERT_EQ(read(told[0], &word, 1), 1);
  const ShimProcess shim{.pid = child, .start_time = read_process(child)->start_time};
  EXPECT_FALSE(told_end(shim)) << "its rank runs";
  ASSERT_EQ(::write(alive[1], "x", 1), 1);
  ASSERT_EQ(read(told[0], &word, 1), 1);
  EXPECT_EQ(told_end(shim), 137);
  EXPECT_FALSE(told_end({.pid = child, .start_time = shim.start_time + 1})) << "a later one of the same pid";
  ASSERT_EQ(::write(alive[1], "x", 1), 1);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(told_end(shim));
  for (const int end : {told[0], told[1], alive[0], alive[1]}) close(end);
}

}  // namespace
}  // namespace tutti::rank
