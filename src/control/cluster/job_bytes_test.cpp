#include "control/cluster/job_bytes.hpp"

#include "control/cluster/cluster_test.hpp"
#include "control/cluster/limits.hpp"

namespace tutti::cluster {
namespace {

constexpr std::size_t word_bytes = 100 << 10;

struct JobBytesTest : ClusterTest {
  // Waits for ever: the cluster has no node.
  static JobSpec large(const std::string& user, std::size_t words = 10) {
    JobSpec large = spec(1, 0);
    large.user = user;
    for (std::size_t word = 0; word < words; ++word) large.command.push_back(std::string(word_bytes, 'x'));
    return large;
  }
  static std::vector<JobSpec> array_of(const JobSpec& like, std::int32_t count) {
    std::vector<JobSpec> elements;
    for (std::int32_t index = 0; index < count; ++index) {
      elements.push_back(like);
      elements.back().array = ArrayPart{JobId(), index, count, 0};
    }
    return elements;
  }
  std::string refusal(const Submit& submit) {
    const auto refused = step(state, now, submit).reply;
    return refused ? "" : refused.error().text() + " / " + refused.error().remedy();
  }
};

TEST_F(JobBytesTest, WhatTheElementsOfAnArrayShareIsHeldOnceAndCountedOnce) {
  auto elements = array_of(large("ada"), 1'000);
  // As they come over a wire: each with a copy of its own.
  for (JobSpec& element : elements) element.command = std::vector<std::string>(element.command.all());
  const auto ids = happen(Submit{std::move(elements)}).reply.value();
  ASSERT_EQ(ids.size(), 1'000U);
  EXPECT_EQ(&job(ids[0]).spec.command.all(), &job(ids[999]).spec.command.all());
  EXPECT_LT(state.bytes.all(), 12 * word_bytes);
  EXPECT_EQ(state.bytes.all(), state.bytes.unfinished());
  for (std::size_t at = 0; at < 999; ++at) step(state, now, Cancel{ids[at], "", false});
  EXPECT_GT(state.bytes.unfinished(), 10 * word_bytes) << "one is left that needs it";
  happen(Cancel{ids[999], "", false});
  EXPECT_EQ(state.bytes.unfinished(), 0U);
  EXPECT_GT(state.bytes.finished(), 10 * word_bytes);
}

TEST_F(JobBytesTest, OneUserDoesNotFillTheClusterForTheOthers) {
  std::string refused;
  std::size_t taken = 0;
  for (; refused.empty() && taken < 1'000; ++taken) refused = refusal({{large("ada")}});
  EXPECT_NE(refused.find("the unfinished jobs of user 'ada' hold"), std::string::npos) << refused;
  EXPECT_NE(refused.find("submit again when some have ended"), std::string::npos) << refused;
  EXPECT_LE(state.bytes.unfinished(), unfinished_bytes_of_user_max);
  EXPECT_GT(taken, 100U);
  EXPECT_EQ(refusal({{large("bob")}}), "");
  happen(Cancel{JobId(1), "", false});
  EXPECT_EQ(refusal({{large("ada")}}), "") << "there is room again";
}

TEST_F(JobBytesTest, AllUsersTogetherAreBoundedToo) {
  std::string refused;
  for (int job = 0; refused.empty() && job < 10'000; ++job)
    refused = refusal({{large("user" + std::to_string(job))}});
  EXPECT_NE(refused.find("the unfinished jobs of this cluster hold"), std::string::npos) << refused;
  EXPECT_LE(state.bytes.unfinished(), unfinished_bytes_max);
  EXPECT_EQ(refusal({array_of(spec(1, 0), 1'000)}), "") << "what is small still has room";
}

// Who submits and cancels in a circle does not get around it.
TEST_F(JobBytesTest, WhatHasEndedCountsUntilItIsForgottenAndGoesSooner) {
  std::string refused;
  int taken = 0;
  for (; refused.empty() && taken < 10'000; ++taken) {
    refused = refusal({{large("ada")}});
    if (refused.empty()) step(state, now, Cancel{JobId(state.next_job - 1), "", false});
  }
  EXPECT_NE(refused.find("finished ones are being forgotten"), std::string::npos) << refused;
  EXPECT_LE(state.bytes.all(), all_bytes_max);
  now += 11s;
  const Retention keep;
  const std::size_t before = state.bytes.all();
  happen(Expire{keep});
  EXPECT_LT(before - state.bytes.all(), expired_bytes_per_step_max + 11 * word_bytes) << "bit by bit";
  for (int step = 0; step < 100; ++step) happen(Expire{keep});
  EXPECT_LE(state.bytes.finished(), kept_bytes_max);
  EXPECT_GT(state.bytes.finished(), kept_bytes_max - 11 * word_bytes) << "no more than has to";
  EXPECT_EQ(refusal({{large("ada")}}), "");
}

TEST_F(JobBytesTest, WhatIsAskedForGoesWithTheLastThatNeedsIt) {
  const auto ids = happen(Submit{array_of(large("ada"), 3)}).reply.value();
  submit(spec(1, 0));
  happen(Cancel{ids[0], "", true});
  EXPECT_EQ(happen(RemoveJobs{{ids[0]}}).asked, std::set<JobId>{ids[0]});
  ASSERT_NE(asked_under(state, ids[0]), nullptr) << "the first is gone, and others are there";
  happen(RemoveJobs{{ids[1], ids[2]}});
  EXPECT_EQ(asked_under(state, ids[0]), nullptr);
  EXPECT_LT(state.bytes.all(), word_bytes);
}

TEST_F(JobBytesTest, WhatTheRanksOfAJobSayIsBoundedTogether) {
  join("a", 0);
  Hello roomy{"b", "", "10.0.0.9", 1, {}, {}};
  roomy.inventory.cpus = 1'000;
  happen(roomy);
  const JobId gang = submit(spec(500, 0));
  ASSERT_TRUE(job(gang).placed());
  std::size_t said = 0;
  for (std::int32_t rank = 0; rank < 500; ++rank)
    report(gang, rank, {RankState::exited, 1, std::string(8'000, 'd')});
  for (const RankStatus& rank : job(gang).ranks) said += rank.detail.size();
  EXPECT_LE(said, job_details_bytes_max);
  EXPECT_GT(said, job_details_bytes_max / 2);
  EXPECT_NE(job(gang).reason.find(std::string(8'000, 'd')), std::string::npos) << "the cause is told whole";
}

}  // namespace
}  // namespace tutti::cluster
