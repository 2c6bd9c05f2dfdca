#include "control/sched/making_way.hpp"

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

// The larger id makes way for the smaller, and goes first; all that runs may be moved.
struct MakingWayTest : testing::Test {
  World world{{node("a", 8), node("b", 8)}};
  TightestNode tightest;
  Rules rules;
  int asked = 0;

  MakingWayTest() {
    rules.choice = &tightest;
    rules.displaces = [this](const Shares&, const JobView& waiting, const JobView& running) {
      ++asked;
      return waiting.id < running.id;
    };
    rules.stop_order = [](const JobView& job) -> OrderKey {
      return {-static_cast<double>(job.id.number()), 0, 0, job.submitted_at, job.id};
    };
  }
  void move_all() {
    rules.moves = [](const Shares&, const JobView&, const JobView&) { return true; };
  }
  // On the node of that name.
  JobView& run_on(const char* name, std::uint64_t id, const Shape& shape) {
    const NodeIndex other = *world.room.find(name[0] == 'a' ? "b" : "a");
    world.room.set_open(other, false);
    JobView& job = world.run(id, shape);
    world.room.set_open(other, true);
    job.yields = true;
    return job;
  }
  static std::vector<std::uint64_t> ids(const Way& way) {
    std::vector<std::uint64_t> found;
    for (const JobView* gang : way.gangs) found.push_back(gang->id.number());
    return found;
  }
  std::optional<Way> find(const JobView& job) {
    const Snapshot snapshot = world.snapshot();
    Claims claims(snapshot, Instant(1h));
    return MakingWay(snapshot, rules).find(claims, Shares(snapshot), job);
  }
};

TEST_F(MakingWayTest, NothingIsStoppedThatNeedNotBe) {
  run_on("a", 3, gpus(8));
  run_on("b", 4, gpus(4));
  run_on("b", 5, gpus(4));
  const auto way = find(world.add(1, gpus(8)));
  ASSERT_TRUE(way);
  EXPECT_EQ(way->kind, Way::Kind::makes_way);
  EXPECT_EQ(ids(*way), (std::vector<std::uint64_t>{5, 4}));
  const auto small = find(world.add(2, gpus(4)));
  ASSERT_TRUE(small);
  EXPECT_EQ(ids(*small), std::vector<std::uint64_t>{5});
}

TEST_F(MakingWayTest, WhatEndsAlreadyIsEnough) {
  run_on("a", 3, gpus(8));
  run_on("b", 4, gpus(8)).ending = true;
  const auto way = find(world.add(1, gpus(8)));
  ASSERT_TRUE(way);
  EXPECT_EQ(way->kind, Way::Kind::ends_already);
  EXPECT_TRUE(way->gangs.empty());
  EXPECT_EQ(asked, 0);
}

TEST_F(MakingWayTest, WhatWasInVainIsNotTriedAgainForItsLike) {
  run_on("a", 1, gpus(8));
  run_on("b", 2, gpus(8));
  JobView& job = world.add(3, gpus(8));
  JobView& alike = world.add(4, gpus(8));
  JobView& of_another = world.add(5, gpus(8));
  of_another.user = 1;
  world.users.push_back({.name = "bob"});
  const Snapshot snapshot = world.snapshot();
  Claims claims(snapshot, Instant(1h));
  const Shares shares(snapshot);
  MakingWay making_way(snapshot, rules);
  EXPECT_FALSE(making_way.find(claims, shares, job));
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(making_way.find(claims, shares, alike));
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(making_way.find(claims, shares, of_another));
  EXPECT_EQ(asked, 4);
}

TEST_F(MakingWayTest, APolicyWithoutTheRuleNeverStopsAnything) {
  run_on("a", 3, gpus(8)).ending = true;
  rules.displaces = nullptr;
  EXPECT_FALSE(find(world.add(1, gpus(16))));
}

// ---- moving

TEST_F(MakingWayTest, TheNodeWithTheLeastOnItIsCleared) {
  move_all();
  run_on("a", 1, gpus(3));
  JobView& smaller = run_on("b", 2, gpus(2));
  JobView& large = world.add(3, {.ranks = 1, .gpu_share = 8 * whole_share});
  const auto way = find(large);
  ASSERT_TRUE(way);
  EXPECT_EQ(way->kind, Way::Kind::moves);
  EXPECT_EQ(ids(*way), std::vector<std::uint64_t>{2});
  smaller.yields = false;
  EXPECT_EQ(ids(find(large).value()), std::vector<std::uint64_t>{1}) << "2 stays";
}

TEST_F(MakingWayTest, NobodyMovesWhoHasNoRoomElsewhere) {
  move_all();
  run_on("a", 1, gpus(7));
  run_on("b", 2, gpus(2));
  EXPECT_FALSE(find(world.add(3, {.ranks = 1, .gpu_share = 8 * whole_share})));
}

TEST_F(MakingWayTest, OnlySmallerGangsMove) {
  move_all();
  run_on("a", 1, gpus(5));
  run_on("b", 2, gpus(5));
  EXPECT_FALSE(find(world.add(3, {.ranks = 1, .gpu_share = 4 * whole_share})));
}

// More than are tried one by one: still none too many, and those that would be stopped rather come first.
TEST_F(MakingWayTest, OfManyNoMoreMakeWayThanAreNeeded) {
  std::vector<NodeView> nodes;
  for (int at = 0; at < 100; ++at) nodes.push_back(node("n" + std::to_string(100 + at), 8));
  world = World(nodes);
  for (std::uint64_t id = 10; id < 810; ++id) world.run(id, gpus(1));
  const JobView& large = world.add(1, {.ranks = 400, .nodes = 50, .gpu_share = whole_share});
  const auto way = find(large);
  ASSERT_TRUE(way);
  EXPECT_EQ(way->gangs.size(), 400U);
  EXPECT_EQ(way->places.slots.size(), 50U);
  for (const JobView* gang : way->gangs) EXPECT_GE(gang->id.number(), 410U);
  const auto loose = find(world.add(2, gpus(300)));
  ASSERT_TRUE(loose);
  EXPECT_EQ(loose->gangs.size(), 300U);
  for (const JobView* gang : loose->gangs) EXPECT_GE(gang->id.number(), 510U);
}

TEST_F(MakingWayTest, ManyThatAreNotEnoughAreNotStopped) {
  std::vector<NodeView> nodes;
  for (int at = 0; at < 50; ++at) nodes.push_back(node("n" + std::to_string(100 + at), 8));
  world = World(nodes);
  for (std::uint64_t id = 10; id < 410; ++id) world.run(id, gpus(1));
  EXPECT_FALSE(find(world.add(1, gpus(401))));
  EXPECT_EQ(asked, 400);
}

}  // namespace
}  // namespace tutti::sched
