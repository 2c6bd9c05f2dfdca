#include "node/agent/rank_end.hpp"

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "node/rank/rank_folder.hpp"

namespace tutti::agent {
namespace {

constexpr Instant heard{100s};

RankEnd left(Instant at) { return {{cluster::RankState::exited, 0, ""}, at}; }

// An agent that was stopped hears late of what its shims have written in time.
TEST(EndIn, ARankThatTheMachineHadNoMemoryForMayStartAgain) {
  std::string folder = testing::TempDir() + "tutti-rank-end-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(
      rank::write_exit(folder, {.exit_code = 137, .detail = "killed", .by_signal = true, .starved = true}));
  const auto end = end_in(folder);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->status.vanished && end->status.by_signal);
  EXPECT_EQ(end->status.exit_code, 137);
}

TEST(BelievedEnd, IsWhenItsShimSaysSo) {
  EXPECT_EQ(believed_end(left(Instant(80s)), {.heard_at = heard, .lived_at = Instant(50s)}), Instant(80s));
  EXPECT_EQ(believed_end(left(Instant(80s)), {.heard_at = heard, .lived_at = {}}), Instant(80s))
      << "of an earlier agent";
  EXPECT_EQ(believed_end(left(Instant()), {.heard_at = heard, .lived_at = Instant(50s)}), heard);
}

// What is on record lies in the rank's hands.
TEST(BelievedEnd, IsNotBeforeItWasSeenToRun) {
  EXPECT_EQ(believed_end(left(Instant(1s)), {.heard_at = heard, .lived_at = Instant(99s)}), Instant(99s));
}

TEST(BelievedEnd, IsNotLaterThanItWasHeardOf) {
  EXPECT_EQ(believed_end(left(Instant(500s)), {.heard_at = heard, .lived_at = Instant(99s)}), heard);
}

TEST(BelievedEnd, IsNotAskedOfARankThatHasKilledItsShim) {
  EXPECT_EQ(
      believed_end(left(Instant(80s)), {.heard_at = heard, .lived_at = Instant(50s), .shim_killed = true}),
      heard);
}

}  // namespace
}  // namespace tutti::agent
