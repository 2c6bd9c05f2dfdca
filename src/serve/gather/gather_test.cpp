#include "serve/gather/gather.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "base/scarcity/scarcity.hpp"

namespace tutti::serve {
namespace {

constexpr Instant start{};
constexpr GatherSettings settings{.rows_max = 4, .delay_max = 2ms};

std::vector<RunId> ids(std::initializer_list<std::uint64_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

class GatherTest : public testing::Test {
 protected:
  void put(const std::string& kind, std::int64_t rows, Duration at, const std::string& who = "") {
    gather.put(RunId(++last), kind, rows, start + at, who);
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

TEST_F(GatherTest, WhoHasThousandsWaitingLetsOthersIn) {
  for (int nth = 0; nth < 1000; ++nth) put("a", 1, 0ms, "flood");
  EXPECT_EQ(gather.take(start), ids({1, 2, 3, 4}));
  put("a", 1, 0ms, "guest");
  put("a", 1, 0ms, "guest");
  EXPECT_EQ(gather.take(start), ids({5, 1001, 6, 1002})) << "they take turns";
  EXPECT_EQ(gather.take(start), ids({7, 8, 9, 10})) << "who is alone has all of it";
}

TEST_F(GatherTest, WhoHasThousandsOfAnotherKindWaitingLetsOthersIn) {
  for (int nth = 0; nth < 1000; ++nth) put("a", 1, 0ms, "flood");
  EXPECT_EQ(gather.take(start).size(), 4U);
  put("b", 1, 0ms, "guest");
  EXPECT_EQ(gather.take(start).front(), RunId(5)) << "the guest may wait for others of its kind";
  EXPECT_EQ(gather.take(start + 2ms), ids({1001}));
}

TEST_F(GatherTest, RowsAreSharedAndNotRequests) {
  for (int nth = 0; nth < 10; ++nth) put("a", 4, 0ms, "large");
  for (int nth = 0; nth < 40; ++nth) put("a", 1, 0ms, "small");
  std::int64_t large = 0;
  std::int64_t small = 0;
  while (large < 20) {
    for (const RunId id : gather.take(start)) (id <= RunId(10) ? large : small) += id <= RunId(10) ? 4 : 1;
  }
  EXPECT_GE(small, large - 4);
  EXPECT_LE(small, large + 4);
}

// One who asks for much at a time, and for the next when he has the last, is not new each time.
TEST_F(GatherTest, WhoComesBackHasHisTurnsBehindHim) {
  for (int nth = 0; nth < 40; ++nth) put("a", 1, 0ms, "small");
  put("a", 4, 0ms, "large");
  std::int64_t small = 0;
  std::int64_t large = 0;
  while (large < 5) {
    for (const RunId id : gather.take(start)) {
      if (id <= RunId(40)) {
        ++small;
      } else {
        ++large;
        put("a", 4, 0ms, "large");
      }
    }
  }
  EXPECT_GE(small, 4 * (large - 1));
}

TEST_F(GatherTest, ACrowdOfNewOnesKeepsNobodyWaitingForEver) {
  put("a", 4, 0ms, "heavy");
  put("a", 4, 0ms, "heavy");
  for (int nth = 0; nth < 8; ++nth) put("a", 1, 0ms, "new" + std::to_string(nth));
  int batches = 0;
  for (bool is_served = false; !is_served; ++batches) {
    for (const RunId id : gather.take(start)) {
      is_served = is_served || id == RunId(2);
      put("a", 1, 0ms, "another" + std::to_string(last));  // whoever is served, somebody new comes
    }
    ASSERT_LT(batches, 100);
  }
}

TEST_F(GatherTest, ToHaveWaitedForOthersIsNoCredit) {
  put("b", 1, 1h, "patient");  // its kind is not due yet
  for (int nth = 0; nth < 400; ++nth) put("a", 1, 1h, "busy");
  for (int nth = 0; nth < 50; ++nth) EXPECT_EQ(gather.take(start + 1h).size(), 4U);
  for (int nth = 0; nth < 100; ++nth) put("a", 1, 1h, "patient");
  EXPECT_EQ(gather.take(start + 1h), ids({402, 202, 403, 203})) << "one turn is his at once, and no more";
}

TEST(Gather, RemembersABoundedNumberOfThoseWhoRest) {
  Gather many({.rows_max = 64, .delay_max = 0ms});
  std::uint64_t id = 0;
  for (std::size_t nth = 0; nth < 2 * Gather::resting_max; ++nth) {
    many.put(RunId(++id), "b", 1, start, "stays");
    many.put(RunId(++id), "a", 64, start, "leaves" + std::to_string(nth));
    while (many.waiting() > 1) many.take(start);
    ASSERT_LE(many.askers(), Gather::resting_max + 2);
  }
}

// Whatever it is that there is no memory for: what has been put is there, and what has not is not.
TEST(Gather, WhereThereIsNoMemoryNothingHasHappened) {
  int refused = 0;
  for (std::size_t most = 0; most < 400; most += 8) {
    Gather gather(settings);
    const std::string long_kind(100, 'k');
    const std::string long_name(150, 'w');
    gather.put(RunId(1), "a", 1, start, "b");
    std::vector<RunId> batch;
    const auto is_refused = [&](const auto& work) {
      try {
        const Scarcity scarcity(most);
        work();
      } catch (const std::bad_alloc&) {
        ++refused;
        return true;
      }
      return false;
    };
    const bool no_second = is_refused([&] { gather.put(RunId(2), long_kind, 1, start, long_name); });
    EXPECT_EQ(gather.waiting(), no_second ? 1U : 2U);
    EXPECT_EQ(gather.askers(), no_second ? 1U : 2U);
    const bool no_batch = is_refused([&] { batch = gather.take(start + 2ms); });
    EXPECT_EQ(batch, no_batch ? ids({}) : ids({1}));
    if (no_batch) {
      EXPECT_EQ(gather.take(start + 2ms), ids({1}));
    }
    EXPECT_EQ(gather.take(start + 2ms), no_second ? ids({}) : ids({2}));
    EXPECT_EQ(gather.waiting(), 0U);
    EXPECT_FALSE(gather.due());
  }
  EXPECT_GT(refused, 10);
}

// Who always has something waiting is given as many rows as any other such one, but for one request of each.
TEST(Gather, ThoseWhoWaitAreGivenTheSame) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Prng random(seed);
    const GatherSettings chosen{.rows_max = random.between(1, 16), .delay_max = 0ms};
    Gather gather(chosen);
    std::map<RunId, std::pair<std::size_t, std::int64_t>> waiting;  // who, rows
    std::vector<std::int64_t> given(4);
    std::uint64_t last = 0;
    const auto put = [&](std::size_t who) {
      const std::int64_t rows = random.between(1, who % 2 == 0 ? chosen.rows_max : 1);
      waiting.emplace(RunId(++last), std::pair(who, rows));
      gather.put(RunId(last), "a", rows, start, std::to_string(who));
    };
    for (std::size_t who = 0; who < given.size(); ++who) {
      for (int nth = 0; nth < (who == 0 ? 100 : 20); ++nth) put(who);
    }
    for (int batch = 0; batch < 200; ++batch) {
      for (const RunId id : gather.take(start)) {
        const auto [who, rows] = waiting.at(id);
        given[who] += rows;
        put(who);
      }
      const auto [least, most] = std::ranges::minmax(given);
      EXPECT_LE(most - least, 2 * chosen.rows_max);
    }
  }
}

// Whatever comes when: each goes once, in his own order, in a batch of its own kind, and nobody waits longer
// than the delay while somebody is there to take it.
TEST(Gather, HoldsItsPromisesForAnyArrivals) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng random(seed);
    const GatherSettings chosen{.rows_max = random.between(1, 8),
                                .delay_max = std::chrono::milliseconds(random.between(0, 5))};
    Gather gather(chosen);
    struct Put {
      std::string kind;
      std::string who;
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
        std::map<std::string, RunId> latest;  // of each in the batch
        for (const RunId id : batch) {
          const auto found = waiting.find(id);
          ASSERT_NE(found, waiting.end()) << "twice";
          EXPECT_EQ(found->second.kind, first.kind);
          EXPECT_LT(std::exchange(latest[found->second.who], id), id);
          rows += found->second.rows;
          waiting.erase(found);
        }
        EXPECT_LE(rows, chosen.rows_max);
        for (const auto& [id, other] : waiting) {
          if (other.kind != first.kind || !latest.contains(other.who)) continue;
          EXPECT_GT(id, latest[other.who]) << "overtaken";
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
                    std::string(1, static_cast<char>('A' + random.below(3))),
                    random.between(1, chosen.rows_max), now};
      waiting.emplace(RunId(++last), put);
      gather.put(RunId(last), put.kind, put.rows, now, put.who);
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
