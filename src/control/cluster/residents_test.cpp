#include "control/cluster/residents.hpp"

#include "control/cluster/parts_test.hpp"

namespace tutti::cluster {
namespace {

using ResidentsTest = PartsTest;

TEST_F(ResidentsTest, AGangIsOnItsNodesWhileItRuns) {
  node("a", 8);
  node("b", 8);
  Residents residents;
  Job& gang = job(1);
  place(gang, "a", {0});
  gang.places.push_back({"b", {{0, 1000}}});
  residents.changed(change(gang, Phase::waiting, Phase::running));
  EXPECT_EQ(residents.jobs_on("a"), std::set{JobId(1)});
  EXPECT_EQ(residents.jobs_on("b"), std::set{JobId(1)});
  leave(gang, JobState::restarting);
  residents.changed(change(gang, Phase::running, Phase::waiting));
  EXPECT_EQ(residents, Residents());
}

TEST_F(ResidentsTest, APortIsTakenWhileAnyoneHasIt) {
  node("a", 8);
  node("b", 8).address = state.nodes.at("a").address;
  Residents residents;
  Job& first = job(1);
  Job& second = job(2);
  place(first, "a", {0});
  place(second, "b", {0});
  first.master_port = second.master_port = 20'000;
  residents.changed(change(first, Phase::waiting, Phase::running));
  residents.changed(change(second, Phase::waiting, Phase::running));
  residents.changed(change(first, Phase::running, Phase::ended));
  EXPECT_TRUE(residents.port_taken("10.0.0.a", 20'000));
  state.nodes.at("b").address = "10.0.0.9";
  residents.changed(change(second, Phase::running, Phase::ended));
  EXPECT_FALSE(residents.port_taken("10.0.0.a", 20'000)) << "also if the node has another address by now";
}

}  // namespace
}  // namespace tutti::cluster
