#include "control/cluster/submit_keys.hpp"

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

TEST_F(ClusterTest, ASubmitThatIsRepeatedWithItsKeyIsAnsweredAndNotDoneAgain) {
  join("a", 8);
  const auto first = happen(Submit{{spec(1)}, "key"}).reply.value();
  all_exit(first.front());
  EXPECT_EQ(happen(Submit{{spec(1)}, "key"}).reply.value(), first) << "also when it has ended";
  EXPECT_EQ(state.jobs.size(), 1U);
  EXPECT_NE(happen(Submit{{spec(1)}, "other"}).reply.value(), first);
  EXPECT_NE(happen(Submit{{spec(1)}}).reply.value(), happen(Submit{{spec(1)}}).reply.value());
  const auto wrong = happen(Submit{{spec(2)}, "key"});
  ASSERT_FALSE(wrong.reply.ok());
  EXPECT_NE(wrong.reply.error().message().find("is that of job 1, which is another one"), std::string::npos);
}

TEST_F(ClusterTest, AnArrayThatIsRepeatedWithItsKeyHasTheSameElements) {
  join("a", 8);
  std::vector<JobSpec> elements;
  for (std::int32_t index = 0; index < 3; ++index) {
    elements.push_back(spec(1));
    elements.back().array = ArrayPart{JobId(), index, 3, 0};
  }
  const auto first = happen(Submit{elements, "key"}).reply.value();
  EXPECT_EQ(first.size(), 3U);
  derive(state, now);
  EXPECT_EQ(happen(Submit{elements, "key"}).reply.value(), first) << "also after a restart of the controller";
  elements.pop_back();
  EXPECT_FALSE(happen(Submit{elements, "key"}).reply.ok());
}

TEST_F(ClusterTest, AKeyOfSomebodyElseIsNobodysHindrance) {
  join("a", 8);
  JobSpec hers = spec(1);
  hers.user = "ann";
  JobSpec his = spec(2);
  his.user = "bob";
  const auto first = happen(Submit{{hers}, "nightly"}).reply.value();
  const auto second = happen(Submit{{his}, "nightly"});
  ASSERT_TRUE(second.reply.ok()) << second.reply.error().text();
  EXPECT_NE(second.reply.value(), first);
  EXPECT_EQ(happen(Submit{{hers}, "nightly"}).reply.value(), first);
  EXPECT_EQ(happen(Submit{{his}, "nightly"}).reply.value(), second.reply.value());
}

TEST_F(ClusterTest, ARefusedSubmitDoesNotUseUpItsKey) {
  join("a", 1);
  EXPECT_FALSE(happen(Submit{{spec(7)}, "key"}).reply.ok());
  EXPECT_TRUE(happen(Submit{{spec(1)}, "key"}).reply.ok());
}

TEST(SubmitKeys, AreBoundedInTimeAndNumber) {
  SubmitKeys keys;
  const Instant begin{1000s};
  keys.add("ann", "old", JobId(1), begin);
  EXPECT_EQ(keys.find("ann", "old", begin + submit_key_time_max), JobId(1));
  EXPECT_FALSE(keys.find("ann", "old", begin + submit_key_time_max + 1s));
  keys.add("ann", "old", JobId(2), begin + submit_key_time_max + 1s);
  EXPECT_EQ(keys.find("ann", "old", begin + submit_key_time_max + 1s), JobId(2))
      << "used again, it is a new one";
  for (std::size_t at = 0; at < submit_keys_max; ++at)
    keys.add("ann", std::to_string(at), JobId(at + 3), begin + submit_key_time_max + 2s);
  EXPECT_FALSE(keys.find("ann", "old", begin + submit_key_time_max + 2s));
  EXPECT_EQ(keys.find("ann", "0", begin + submit_key_time_max + 2s), JobId(3));
}

TEST(SubmitKeys, OneUserWithManyLosesHisOwn) {
  SubmitKeys keys;
  const Instant now{1000s};
  keys.add("bob", "precious", JobId(1), now);
  for (std::size_t at = 0; at < submit_keys_max + 10; ++at)
    keys.add("ann", std::to_string(at), JobId(at + 2), now);
  EXPECT_EQ(keys.find("bob", "precious", now), JobId(1)) << "the oldest of all, and not hers";
  EXPECT_FALSE(keys.find("ann", "10", now)) << "her first ones are gone";
  EXPECT_EQ(keys.find("ann", "11", now), JobId(13));
  keys.add("bob", "12", JobId(7), now);
  EXPECT_EQ(keys.find("bob", "12", now), JobId(7));
  EXPECT_EQ(keys.find("ann", "12", now), JobId(14)) << "each has his own";
  EXPECT_FALSE(keys.find("ann", "11", now)) << "room for his is made among hers";
}

}  // namespace
}  // namespace tutti::cluster
