#include "gate/balance/balance.hpp"

#include <array>

#include <gtest/gtest.h>

namespace tutti::gate {
namespace {

const std::array backends{BackendId(1), BackendId(2), BackendId(3)};
constexpr Instant now(1h);

struct Three : testing::Test {
  Three() {
    for (const BackendId id : backends) balance.add(id);
  }
  std::optional<BackendId> choose(const Burden& burden = {10, 10}, const std::set<BackendId>& but = {},
                                  Instant at = now) const {
    return balance.choose(backends, burden, but, at);
  }
  Balance balance;
};

TEST_F(Three, AllGetTheSameWhereAllIsTheSame) {
  std::map<BackendId, int> got;
  for (int at = 0; at < 300; ++at) {
    const auto chosen = choose();
    ASSERT_TRUE(chosen);
    ++got[*chosen];
    balance.begin(*chosen, {10, 10}, now);
  }
  for (const BackendId id : backends) EXPECT_EQ(got[id], 100);
}

TEST_F(Three, WhoHasLeastToDoIsAsked) {
  const auto long_one = balance.begin(BackendId(1), {10'000, 100}, now);
  balance.begin(BackendId(2), {100, 100}, now);
  balance.begin(BackendId(2), {100, 100}, now);
  EXPECT_EQ(choose(), BackendId(3));
  balance.begin(BackendId(3), {5'000, 1'000}, now);
  EXPECT_EQ(choose(), BackendId(2)) << "two short ones are less than a long one";
  balance.end(BackendId(1), long_one);
  EXPECT_EQ(choose(), BackendId(1));
  EXPECT_EQ(balance.outstanding(BackendId(1)), 0);
}

TEST_F(Three, WhoKnowsTheBeginningIsAskedUnlessOthersAreFreer) {
  const std::vector<std::uint64_t> marks{11, 12, 13, 14, 15, 16, 17};
  const Burden talk{1'000, 10, marks};
  balance.end(BackendId(2), balance.begin(BackendId(2), talk, now));
  EXPECT_EQ(choose(talk), BackendId(2));
  EXPECT_NE(choose({1'000, 10}), BackendId(2)) << "he had the last turn";
  const std::vector<std::uint64_t> others{11, 99};
  EXPECT_EQ(choose({1'000, 10, others}), BackendId(2)) << "a part of it is something";
  for (int at = 0; at < 20; ++at) balance.begin(BackendId(2), {10, 100}, now);
  EXPECT_NE(choose(talk), BackendId(2)) << "he has so much to do that others begin sooner";
}

TEST_F(Three, BeginningsAreForgottenInTheOrderOfTheirUse) {
  std::vector<std::uint64_t> first{1};
  balance.begin(BackendId(1), {1'000, 1, first}, now);
  for (std::uint64_t mark = 2; mark < 2 * marks_known_max; ++mark) {
    const std::vector<std::uint64_t> one{mark};
    balance.end(BackendId(1), balance.begin(BackendId(1), {1, 0, one}, now));
    if (mark % 1'000 == 0) balance.end(BackendId(1), balance.begin(BackendId(1), {1, 0, first}, now));
  }
  const std::vector<std::uint64_t> old{2};
  const auto weight = [&](const std::vector<std::uint64_t>& marks) {
    const auto begun = balance.begin(BackendId(1), {1'000, 0, marks}, now);
    balance.end(BackendId(1), begun);
    return begun;
  };
  EXPECT_EQ(weight(first), 500);
  EXPECT_EQ(weight(old), 1'000);
}

TEST_F(Three, WhoFailedRestsEachTimeForLonger) {
  balance.failed(BackendId(1), now);
  balance.failed(BackendId(1), now);  // of the same end
  EXPECT_TRUE(balance.rests(BackendId(1), now));
  EXPECT_FALSE(balance.rests(BackendId(1), now + rest_time_min));
  EXPECT_EQ(balance.next_rested(backends), now + rest_time_min);
  Instant at = now + rest_time_min;
  for (int times = 0; times < 20; ++times) {
    balance.failed(BackendId(1), at);
    at = *balance.next_rested(backends);
  }
  EXPECT_TRUE(balance.rests(BackendId(1), at - 1ns));
  EXPECT_FALSE(balance.rests(BackendId(1), at));
  balance.worked(BackendId(1));
  balance.failed(BackendId(1), at);
  EXPECT_FALSE(balance.rests(BackendId(1), at + rest_time_min)) << "it began anew";
}

TEST_F(Three, WhoMayBeBackIsAskedOneThing) {
  for (const BackendId id : {BackendId(2), BackendId(3)}) balance.remove(id);
  balance.failed(BackendId(1), now);
  EXPECT_EQ(choose(), std::nullopt);
  const Instant later = now + rest_time_min;
  ASSERT_EQ(choose({10, 10}, {}, later), BackendId(1));
  balance.begin(BackendId(1), {10, 10}, later);
  EXPECT_EQ(choose({10, 10}, {}, later), std::nullopt);
  balance.worked(BackendId(1));
  EXPECT_EQ(choose({10, 10}, {}, later), BackendId(1));
}

TEST_F(Three, NobodyHasMoreAtOnceThanHeTakes) {
  Balance two(2);
  for (const BackendId id : {BackendId(1), BackendId(2)}) two.add(id);
  const auto choose_of_two = [&] { return two.choose(backends, {10, 10}, {}, now); };
  for (int times = 0; times < 2; ++times) two.begin(BackendId(1), {1, 1}, now);
  EXPECT_TRUE(two.is_full(BackendId(1)));
  two.begin(BackendId(2), {10'000, 10'000}, now);
  EXPECT_EQ(choose_of_two(), BackendId(2)) << "he has more to do, and room";
  two.begin(BackendId(2), {1, 1}, now);
  EXPECT_EQ(choose_of_two(), std::nullopt);
  two.failed(BackendId(1), now);
  EXPECT_EQ(two.next_rested(backends), std::nullopt) << "rested he is as full";
  two.end(BackendId(2), 1);
  EXPECT_EQ(choose_of_two(), BackendId(2));
}

TEST_F(Three, WhoWasAskedInVainIsLeftOut) {
  EXPECT_EQ(choose({10, 10}, {BackendId(1), BackendId(2)}), BackendId(3));
  EXPECT_EQ(choose({10, 10}, {BackendId(1), BackendId(2), BackendId(3)}), std::nullopt);
  balance.remove(BackendId(3));
  EXPECT_EQ(choose({10, 10}, {BackendId(1), BackendId(2)}), std::nullopt);
  balance.end(BackendId(3), 5);  // what was under way there
}

}  // namespace
}  // namespace tutti::gate
