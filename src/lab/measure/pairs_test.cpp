#include "lab/measure/pairs.hpp"

#include <mutex>
#include <set>

#include <gtest/gtest.h>

#include "comm/ranks_test.hpp"

namespace tutti::measure {
namespace {

using comm::Transport;

TEST(Tournament, EachPairOnceAndNoRankTwiceInARound) {
  EXPECT_TRUE(tournament(0).empty());
  EXPECT_TRUE(tournament(1).empty());
  for (int ranks = 2; ranks <= 33; ++ranks) {
    const auto rounds = tournament(ranks);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(ranks % 2 == 0 ? ranks - 1 : ranks));
    std::set<std::pair<int, int>> played;
    for (const Round& round : rounds) {
      std::set<int> busy;
      EXPECT_EQ(round.size(), static_cast<std::size_t>(ranks / 2)) << "all play but one of an odd number";
      for (const auto& [lower, higher] : round) {
        EXPECT_TRUE(0 <= lower && lower < higher && higher < ranks) << lower << " " << higher;
        EXPECT_TRUE(busy.insert(lower).second && busy.insert(higher).second) << "of " << ranks << " ranks";
        EXPECT_TRUE(played.emplace(lower, higher).second) << lower << " and " << higher << " met before";
      }
    }
    EXPECT_EQ(played.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2));
  }
}

class Pairs : public testing::TestWithParam<std::pair<int, Transport>> {};

TEST_P(Pairs, RankZeroKnowsBothDirectionsOfEach) {
  const auto [ranks, transport] = GetParam();
  const PairOptions options{.latency_time = 5ms, .bandwidth_time = 10ms};
  std::mutex mutex;
  std::vector<PairResult> results;
  std::vector<std::pair<int, int>> rounds;
  std::string json;
  comm::run_threads(ranks, transport, [&](comm::Communicator& world) {
    auto measured = measure_pairs(world, options, [&](int round, int of) { rounds.emplace_back(round, of); });
    ASSERT_TRUE(measured.ok()) << measured.error().text();
    const std::lock_guard lock(mutex);
    if (world.rank() != 0) {
      EXPECT_TRUE(measured->empty());
      return;
    }
    results = std::move(*measured);
    json = pairs_json(world, results);
  });
  std::set<std::pair<int, int>> seen;
  for (const PairResult& result : results) {
    seen.emplace(result.from, result.to);
    EXPECT_NE(result.from, result.to);
    EXPECT_TRUE(result.latency_us > 0 && result.latency_us < 1e7) << result.latency_us;
    EXPECT_TRUE(result.bandwidth_gb_s > 1e-4 && result.bandwidth_gb_s < 1e4) << result.bandwidth_gb_s;
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(ranks * (ranks - 1)));
  EXPECT_EQ(results.size(), seen.size());
  const auto planned = static_cast<int>(tournament(ranks).size());
  ASSERT_EQ(rounds.size(), static_cast<std::size_t>(planned));
  EXPECT_EQ(rounds.back(), std::pair(planned, planned));
  EXPECT_TRUE(json.starts_with("[\n {\"from\": \"")) << json;
  EXPECT_TRUE(json.ends_with("}\n]")) << json;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Pairs,
                         testing::Values(std::pair(2, Transport::shm), std::pair(3, Transport::tcp),
                                         std::pair(4, Transport::shm), std::pair(5, Transport::tcp)),
                         [](const auto& about) {
                           return std::to_string(about.param.first) +
                                  (about.param.second == Transport::shm ? "shm" : "tcp");
                         });

TEST(PairsAlone, OneRankHasNobodyToMeasure) {
  comm::run_threads(1, Transport::automatic, [](comm::Communicator& world) {
    const auto measured = measure_pairs(world, {}, nullptr);
    ASSERT_TRUE(measured.ok());
    EXPECT_TRUE(measured->empty());
    EXPECT_EQ(pairs_json(world, *measured), "[\n]");
  });
}

}  // namespace
}  // namespace tutti::measure
