#include "serve/gather/gather.hpp"

#include <set>

#include <gtest/gtest.h>

#include "base/prng.hpp"

namespace tutti::serve {
namespace {

constexpr Instant start{};
constexpr GatherSettings settings{.rows_max = 4, .delay_max = 2ms};

std::vector<RunId> ids(std::initializer_list<std::uint64_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

class GatherTest : public testing::Test {
 protected:
  void put(const std::string& kind, std::int64_t rows, Duration at) {
    gather.put(RunId(++last), kind, rows, start + at);
  }
  Gather gather{settings};
  std::uint64_t last = 0;
};

TEST_F(GatherTest, WaitsForOthersAndNotForEver) {
  EXPECT_FALSE(gather.due());
  put("a", 1, 0ms);
  put("a", 1, 1ms);
  EXPECT_EQ(gather.due(), start + 2ms);
  EXPECT_TRUE(gather.take(start + 2ms - 1ns).empty());
  EXPECT_EQ(gather.take(start + 2ms), ids({1, 2}));
  EXPECT_TRUE(gather.take(start + 1h).empty());
  EXPECT_EQ(gather.waiting(), 0U);
}

TEST_F(GatherTest, AFullBatchGoesAtOnce) {
  for (int nth = 0; nth < 5; ++nth) put("a", 1, 0ms);
  EXPECT_EQ(gather.due(), start);
  EXPECT_EQ(gather.take(start), ids({1, 2, 3, 4}));
  EXPECT_TRUE(gather.take(start).empty()) << "the fifth waits for others";
  EXPECT_EQ(gather.due(), start + 2ms);
}

TEST_F(GatherTest, WhatDoesNotFitIsNotOvertaken) {
  put("a", 3, 0ms);
  put("a", 2, 0ms);
  put("a", 1, 0ms);
  EXPECT_EQ(gather.take(start), ids({1})) << "no more fits, so that nothing is waited for";
  EXPECT_TRUE(gather.take(start).empty());
  EXPECT_EQ(gather.take(start + 2ms), ids({2, 3}));
}

TEST_F(GatherTest, OnlyOneKindInABatchAndTheOldestKindFirst) {
  put("a", 1, 0ms);
  for (int nth = 0; nth < 4; ++nth) put("b", 1, 1ms);
  EXPECT_EQ(gather.take(start + 1ms), ids({2, 3, 4, 5})) << "full, while the other still may wait";
  for (int nth = 0; nth < 4; ++nth) put("b", 1, 2ms);
  EXPECT_EQ(gather.take(start + 2ms), ids({1})) << "its time has come, and it came first";
  EXPECT_EQ(gather.take(start + 2ms), ids({6, 7, 8, 9}));
}

TEST_F(GatherTest, WhoLeavesIsNotComputed) {
  put("a", 2, 0ms);
  put("a", 2, 0ms);
  EXPECT_TRUE(gather.drop(RunId(1)));
  EXPECT_FALSE(gather.drop(RunId(1)));
  EXPECT_FALSE(gather.drop(RunId(7)));
  EXPECT_TRUE(gather.take(start + 1ms).empty()) << "it is not full any more";
  EXPECT_EQ(gather.take(start + 2ms), ids({2}));
  EXPECT_FALSE(gather.drop(RunId(2))) << "it is being computed";
}

TEST(Gather, WithoutBatchesEachGoesAloneAndAtOnce) {
  Gather gather({.rows_max = 1, .delay_max = 1h});
  gather.put(RunId(1), "a", 1, start);
  gather.put(RunId(2), "a", 1, start);
  EXPECT_EQ(gather.take(start), ids({1}));
  EXPECT_EQ(gather.take(start), ids({2}));
}

// Whatever comes when: each goes once, in its turn, in a batch of its own kind, and nobody waits longer than
// the delay while somebody is there to take it.
TEST(Gather, HoldsItsPromisesForAnyArrivals) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng random(seed);
    const GatherSettings chosen{.rows_max = random.between(1, 8),
                                .delay_max = std::chrono::milliseconds(random.between(0, 5))};
    Gather gather(chosen);
    struct Put {
      std::string kind;
      std::int64_t rows;
      Instant came;
    };
    std::map<RunId, Put> waiting;
    std::uint64_t last = 0;
    Instant now = start;
    const auto take_all = [&] {
      for (;;) {
        const auto batch = gather.take(now);
        if (batch.empty()) break;
        std::int64_t rows = 0;
        const Put first = waiting.at(batch.front());
        for (const RunId id : batch) {
          const auto found = waiting.find(id);
          ASSERT_NE(found, waiting.end()) << "twice";
          EXPECT_EQ(found->second.kind, first.kind);
          rows += found->second.rows;
          waiting.erase(found);
        }
        EXPECT_LE(rows, chosen.rows_max);
        for (const auto& [id, other] : waiting) {
          if (other.kind != first.kind) continue;
          EXPECT_GT(id, batch.back()) << "overtaken";
        }
      }
      for (const auto& [id, other] : waiting) EXPECT_GT(other.came + chosen.delay_max, now) << "too late";
    };
    for (int event = 0; event < 200; ++event) {
      const Instant next = now + std::chrono::microseconds(random.below(1500));
      while (gather.due() && *gather.due() <= next) {
        now = std::max(now, *gather.due());
        take_all();
      }
      now = next;
      if (!waiting.empty() && random.below(10) == 0) {
        EXPECT_TRUE(gather.drop(waiting.begin()->first));
        waiting.erase(waiting.begin());
      }
      const Put put{std::string(1, static_cast<char>('a' + random.below(3))),
                    random.between(1, chosen.rows_max), now};
      waiting.emplace(RunId(++last), put);
      gather.put(RunId(last), put.kind, put.rows, now);
      take_all();
    }
    EXPECT_EQ(gather.waiting(), waiting.size());
    now += 1h;
    take_all();
    EXPECT_TRUE(waiting.empty());
  }
}

}  // namespace
}  // namespace tutti::serve
