#include "learn/train/replay.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::train {
namespace {

TEST(Replay, IsJudgedByWhatTheTermsExplain) {
  EXPECT_EQ(compare_losses(2.5, 2.5, {.same_mesh = true}), Replay::same);
  EXPECT_EQ(compare_losses(2.5 * (1 + 3e-6), 2.5, {.same_mesh = true}), Replay::rounded);
  EXPECT_EQ(compare_losses(2.5 * (1 + 3e-6), 2.5, {}), Replay::same);
  EXPECT_EQ(compare_losses(2.5 * 1.01, 2.5, {}), Replay::another);
  EXPECT_EQ(compare_losses(2.5 * 1.01, 2.5, {.bf16 = true}), Replay::rounded);
  EXPECT_EQ(compare_losses(std::nan(""), 2.5, {.bf16 = true}), Replay::another);
}

TEST(Replay, OfALossOfNothingIsNoDivisionByIt) {
  EXPECT_EQ(compare_losses(0, 0, {.same_mesh = true}), Replay::same);
  EXPECT_EQ(compare_losses(1e-7, 0, {}), Replay::rounded);
  EXPECT_EQ(compare_losses(0.5, 0, {.bf16 = true}), Replay::another);
}

}  // namespace
}  // namespace tutti::train
