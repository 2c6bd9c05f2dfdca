// Who is lost when many fall silent at once: the controller doubts its own ears first.
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct Silence : ClusterTest {
  void join_all(int count) {
    for (int node = 0; node < count; ++node) join("n" + std::to_string(node), 1);
  }
  // These are heard, and time goes on by less than a lease.
  void hear_from(int first, int last) {
    for (int node = first; node < last; ++node) happen(Heard{"n" + std::to_string(node)});
  }
  std::size_t lost() const {
    return static_cast<std::size_t>(std::count_if(state.nodes.begin(), state.nodes.end(),
                                                  [](const auto& entry) { return entry.second.lost; }));
  }
};

TEST_F(Silence, OfAFewNodesCountsAtOnce) {
  join_all(20);
  now += lease;
  hear_from(2, 20);
  pass(200ms);
  EXPECT_EQ(lost(), 2U);
}

TEST_F(Silence, OfOneOfTwoCountsAtOnce) {
  join_all(2);
  now += lease;
  hear_from(1, 2);
  pass(200ms);
  EXPECT_EQ(lost(), 1U);
}

// Their last words are never of the same moment.
TEST_F(Silence, OfBothOfTwoIsDoubtedForOneMoreLease) {
  join_all(2);
  now += heartbeat_every / 2;
  hear_from(1, 2);
  for (Duration silence{}; silence < 2 * lease - heartbeat_every; silence += 200ms) pass(200ms);
  EXPECT_EQ(lost(), 0U);
  for (Duration silence{}; silence < 2 * heartbeat_every; silence += 200ms) pass(200ms);
  EXPECT_EQ(lost(), 2U);
}

TEST_F(Silence, OfManyIsDoubtedForOneMoreLease) {
  join_all(20);
  now += lease;
  hear_from(5, 20);
  pass(200ms);
  EXPECT_EQ(lost(), 0U);
  hear_from(0, 2);
  pass(lease - 400ms);
  hear_from(2, 20);
  EXPECT_EQ(lost(), 0U) << "all of them were only not heard";
  pass(200ms);
  EXPECT_EQ(lost(), 0U);
}

TEST_F(Silence, OfManyThatGoesOnIsALoss) {
  join_all(20);
  for (int quarter = 0; quarter < 9; ++quarter) {
    hear_from(5, 20);
    pass(lease / 4);
  }
  EXPECT_EQ(lost(), 5U);
}

TEST_F(Silence, ThatGrowsWithinALeaseIsOneToo) {
  join_all(20);
  now += lease;
  hear_from(1, 20);
  pass(200ms);
  EXPECT_EQ(lost(), 1U);
  now += lease - 200ms;
  hear_from(4, 20);
  pass(200ms);
  EXPECT_EQ(lost(), 1U) << "four within a lease, of twenty";
}

TEST_F(Silence, IsNotThatOfANodeThatReports) {
  join_all(2);
  for (int half = 0; half < 4; ++half) {
    now += lease / 2;
    happen(Reported("n0", std::vector<RankReport>()));
    pass(200ms);
  }
  EXPECT_FALSE(state.nodes.at("n0").lost) << "its heartbeats may wait behind its reports";
  EXPECT_TRUE(state.nodes.at("n1").lost);
  sends.clear();
  happen(Reported("n1", std::vector<RankReport>()));
  EXPECT_TRUE(state.nodes.at("n1").lost) << "it comes back with all that it runs, or not at all";
}

TEST_F(Silence, MeansNothingToTheDeaf) {
  join_all(1);
  now += 10 * lease;
  happen(Tick{.deaf = true});
  EXPECT_EQ(lost(), 0U);
  happen(Tick{});
  EXPECT_EQ(lost(), 1U);
}

}  // namespace
}  // namespace tutti::cluster
