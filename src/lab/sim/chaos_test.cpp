#include "lab/sim/chaos.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "lab/sim/campaign.hpp"

namespace tutti::sim {
namespace {

constexpr std::uint64_t seeds = 600;
constexpr std::uint64_t sabotaged_seeds = 300;

std::string told(const ChaosReport& report) {
  std::string text = "seed " + std::to_string(report.seed) + ": " + report.violation + "\n";
  for (const auto& line : report.history) text += line + "\n";
  return text;
}

TEST(Chaos, PromisesHoldUnderFaultsAndEverythingFinishesAfterThem) {
  const Tally tally = run_campaign({.first = 1, .last = seeds},
                                   [](const Tally& so_far, std::uint64_t) { return so_far.broken.empty(); });
  for (const ChaosReport& report : tally.broken) ADD_FAILURE() << told(report);
  EXPECT_EQ(tally.twice, seeds / 50);
  // A world in which nothing happens would keep every promise.
  EXPECT_GT(tally.faults, seeds * 10);
  EXPECT_GT(tally.jobs, seeds * 10);
  EXPECT_GT(tally.attempts, tally.jobs + tally.jobs / 10);
}

TEST(Chaos, TheLargestSeedIsTheLastOne) {
  constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  const Tally tally = run_campaign({.first = largest - 1, .last = largest, .twice_every = 0},
                                   [](const Tally& so_far, std::uint64_t) { return so_far.seeds < 3; });
  EXPECT_EQ(tally.seeds, 2U);
  EXPECT_TRUE(tally.broken.empty());
}

TEST(Chaos, OneSeedIsOneHistory) {
  const ChaosOptions options{.keep_history = true};
  const ChaosReport once = run_chaos(7, options);
  const ChaosReport again = run_chaos(7, options);
  EXPECT_EQ(once.history, again.history);
  EXPECT_EQ(once.digest, again.digest);
  EXPECT_EQ(once.events, once.history.size());
  EXPECT_NE(once.digest, run_chaos(8, options).digest);
}

// Do seeds that find nothing otherwise find this, if a part is broken?
bool found(Sabotage sabotage, const std::string& what) {
  for (std::uint64_t seed = 1; seed <= sabotaged_seeds; ++seed) {
    const ChaosReport report = run_chaos(seed, {.sabotage = sabotage});
    if (report.violation.find(what) != std::string::npos) return true;
  }
  return false;
}

TEST(Chaos, AnAgentThatForgetsWhatItStartedIsFound) {
  EXPECT_TRUE(found(Sabotage::agent_forgets_its_disk, "while other ranks still used it"));
}

TEST(Chaos, WhatIsVisibleBeforeItIsStoredIsFound) {
  EXPECT_TRUE(found(Sabotage::visible_before_stored, "was acknowledged and is forgotten"));
  EXPECT_TRUE(found(Sabotage::visible_before_stored, "was started, and no such start was stored"));
}

TEST(Chaos, ADiskThatConfirmsWhatItHasNotStoredIsFound) {
  EXPECT_TRUE(found(Sabotage::disk_lies, "the store and the controller know different jobs or nodes"));
}

TEST(Chaos, AConnectionThatSpeaksAfterItsTimeIsFound) {
  EXPECT_TRUE(found(Sabotage::old_connections_speak, "run at the same time"));
}

}  // namespace
}  // namespace tutti::sim
