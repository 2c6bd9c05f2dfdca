#include "control/cluster/shares.hpp"

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

TEST(Shares, OneUserAloneGetsThreeQuarters) {
  Shares shares;
  EXPECT_TRUE(shares.admit("ada", 75, 100, "seats").ok());
  EXPECT_FALSE(shares.admit("ada", 76, 100, "seats").ok());
  shares.add("ada", 75);
  EXPECT_FALSE(shares.admit("ada", 1, 100, "seats").ok());
  EXPECT_TRUE(shares.admit("ada", 0, 100, "seats").ok());
  shares.remove("ada", 75);
  EXPECT_EQ(shares, Shares());
}

TEST(Shares, WhoeverComesLaterFindsRoom) {
  Shares shares;
  for (const char* user : {"ada", "bob", "cyd", "dan", "eve"}) {
    EXPECT_TRUE(shares.admit(user, 1, 1'000, "seats").ok()) << user;
    while (shares.admit(user, 1, 1'000, "seats").ok()) shares.add(user, 1);
  }
  EXPECT_LT(shares.all(), 1'000U);
  EXPECT_EQ(shares.of_user("ada"), 750U);
  EXPECT_GT(shares.of_user("bob"), 180U);
}

TEST(Shares, TheRemedyIsForTheOneWhoHoldsTooMuch) {
  Shares shares;
  shares.add("ada", 75);
  const auto greedy = shares.admit("ada", 2, 100, "seats");
  ASSERT_FALSE(greedy.ok());
  EXPECT_EQ(greedy.error().text(),
            "user 'ada' holds 75 of the 100 seats that the cluster takes, and this would add 2; one user may "
            "hold at most three times what is left for the others");
  EXPECT_EQ(greedy.error().remedy(), "cancel some, or submit again when some have ended");
  const auto victim = shares.admit("bob", 30, 100, "seats");
  ASSERT_FALSE(victim.ok());
  EXPECT_EQ(victim.error().text(),
            "user 'bob' holds 0 of the 100 seats that the cluster takes, and this would add 30; 25 are left, "
            "and user 'ada' holds 75");
  EXPECT_EQ(victim.error().remedy(), "submit again when some have ended; user 'ada' can cancel some");
}

struct SharesTest : ClusterTest {
  // Waits for ever: the cluster has no node.
  static Submit array_of(const std::string& user, std::int32_t count, const std::vector<JobId>& after = {}) {
    JobSpec one = spec(1, 0);
    one.user = user;
    std::vector<Dependency> before;
    for (const JobId id : after) before.push_back({id, false});
    one.after = std::move(before);
    Submit submit;
    for (std::int32_t index = 0; index < count; ++index) {
      submit.specs.push_back(one);
      submit.specs.back().array = ArrayPart{JobId(), index, count, 0};
    }
    return submit;
  }
};

TEST_F(SharesTest, OneUserDoesNotTakeEveryPlaceInTheQueue) {
  const Submit many = array_of("ada", array_elements_max);
  std::string refused;
  for (int arrays = 0; refused.empty() && arrays < 100; ++arrays) {
    const auto reply = step(state, now, many).reply;
    if (!reply) refused = reply.error().text();
  }
  EXPECT_NE(refused.find("user 'ada' holds 150000 of the 200000 unfinished jobs"), std::string::npos)
      << refused;
  const auto bob = step(state, now, array_of("bob", array_elements_max)).reply;
  ASSERT_TRUE(bob.ok()) << bob.error().text();
  EXPECT_EQ(state.unfinished.of_user("bob"), 10'000U);
  EXPECT_TRUE(invariants(state).ok());
  ASSERT_TRUE(step(state, now, Cancel{bob->front(), "", true}).reply.ok());
  EXPECT_EQ(state.unfinished.of_user("bob"), 0U);
  EXPECT_EQ(state.unfinished.all(), state.active.size());
}

TEST_F(SharesTest, OneUserDoesNotTakeAllDependencies) {
  const auto before = *step(state, now, array_of("ada", 1'000)).reply;
  ASSERT_TRUE(step(state, now, array_of("ada", 750, before)).reply.ok());
  const auto refused = step(state, now, array_of("ada", 1, before)).reply;
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("user 'ada' holds 750000 of the 1000000 dependencies"),
            std::string::npos)
      << refused.error().text();
  const auto bob = step(state, now, array_of("bob", 100, before)).reply;
  ASSERT_TRUE(bob.ok()) << bob.error().text();
  EXPECT_EQ(state.index.dependencies().of_user("bob"), 100'000U);
  // Those that end, and those that others waited for.
  ASSERT_TRUE(step(state, now, Cancel{bob->front(), "", false}).reply.ok());
  EXPECT_EQ(state.index.dependencies().of_user("bob"), 99'000U);
  ASSERT_TRUE(step(state, now, Cancel{before.front(), "", false}).reply.ok());
  EXPECT_EQ(state.index.dependencies().of_user("bob"), 98'901U);
  EXPECT_EQ(state.index.dependencies().of_user("ada"), 749'250U);
}

}  // namespace
}  // namespace tutti::cluster
