#include "net/http/progress.hpp"

#include <gtest/gtest.h>

namespace tutti::net {
namespace {

TEST(Progress, IsAPartOfTheAnswerHoweverItIsTaken) {
  Progress progress(std::size_t{64} << 20);
  EXPECT_TRUE(progress.took(std::size_t{2} << 20));
  EXPECT_FALSE(progress.took(std::size_t{1} << 19));
  EXPECT_FALSE(progress.took(std::size_t{1} << 18));
  EXPECT_TRUE(progress.took(std::size_t{1} << 19));
  EXPECT_FALSE(progress.took(1));
}

TEST(Progress, IsMadeOnlySoOften) {
  constexpr std::size_t bytes = 1'000'000;
  Progress progress(bytes);
  std::size_t times = 0;
  for (std::size_t taken = 0; taken < bytes; ++taken) times += progress.took(1) ? 1U : 0U;
  EXPECT_GT(times, answer_parts / 2);
  EXPECT_LE(times, answer_parts);
}

TEST(Progress, OfALittleIsAnyByte) {
  Progress progress(0);
  EXPECT_TRUE(progress.took(1));
}

}  // namespace
}  // namespace tutti::net
