#include "sched/sched.hpp"

#include <set>

#include <gtest/gtest.h>

#include "base/prng.hpp"

namespace tutti::sched {
namespace {

NodeView node(const std::string& name, int gpus, const std::string& model = "H100", int cpus = 16) {
  NodeView view{.name = name, .location = "", .devices = {}, .cpus_free = cpus, .memory_free = gib(64)};
  for (int gpu = 0; gpu < gpus; ++gpu) view.devices.push_back({model, gib(80), whole_share});
  return view;
}

JobView job(std::uint64_t id, Shape shape, int priority = 0, Instant at = {}) {
  return {.id = JobId(id), .attempt = 0, .priority = priority, .submitted_at = at, .shape = std::move(shape)};
}

std::set<std::string> nodes_of(const std::vector<RankPlace>& places) {
  std::set<std::string> names;
  for (const auto& place : places) names.insert(place.node);
  return names;
}

TEST(Place, PacksAGangIntoFewNodes) {
  std::vector<NodeView> nodes{node("a", 4), node("b", 8), node("c", 8)};
  const auto places = place({.ranks = 12, .gpu_share = 1000}, nodes);
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(nodes_of(*places).size(), 2U);
  EXPECT_EQ(nodes_of(*places).count("a"), 1U) << "the rest of four goes to the node that it fills";
}

TEST(Place, ASmallGangGoesToTheTightestNode) {
  std::vector<NodeView> nodes{node("a", 8), node("b", 2), node("c", 8)};
  const auto places = place({.ranks = 2, .gpu_share = 1000}, nodes);
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(nodes_of(*places), std::set<std::string>{"b"});
}

TEST(Place, IsAllOrNothing) {
  std::vector<NodeView> nodes{node("a", 4), node("b", 4)};
  const auto before = nodes;
  const auto places = place({.ranks = 9, .gpu_share = 1000}, nodes);
  ASSERT_FALSE(places.ok());
  EXPECT_EQ(places.error().message(),
            "needs 9 ranks of 1 GPU; 2 nodes take work, 8 matching GPUs are free, 8 such ranks would fit");
  EXPECT_EQ(nodes[0].devices[0].share_free, before[0].devices[0].share_free) << "nothing was taken";
}

TEST(Place, SharesADeviceAndKeepsOthersWhole) {
  std::vector<NodeView> nodes{node("a", 2)};
  const auto places = place({.ranks = 4, .gpu_share = 250}, nodes);
  ASSERT_TRUE(places.ok());
  for (const auto& rank : *places) EXPECT_EQ(rank.devices, (std::vector<DeviceShare>{{0, 250}}));
  EXPECT_EQ(nodes[0].devices[1].share_free, whole_share);
  EXPECT_FALSE(place({.ranks = 2, .gpu_share = 1000}, nodes).ok()) << "one device is full";
}

TEST(Place, HonoursNodesAndRanksPerNode) {
  std::vector<NodeView> nodes{node("a", 8), node("b", 8), node("c", 8)};
  auto copy = nodes;
  const auto spread = place({.ranks = 4, .nodes = 2, .gpu_share = 1000}, copy);
  ASSERT_TRUE(spread.ok());
  EXPECT_EQ(nodes_of(*spread).size(), 2U);
  EXPECT_EQ((*spread)[0].node, (*spread)[1].node) << "ranks of one node are neighbours";
  copy = nodes;
  const auto limited = place({.ranks = 6, .ranks_per_node = 2, .gpu_share = 1000}, copy);
  ASSERT_TRUE(limited.ok());
  EXPECT_EQ(nodes_of(*limited).size(), 3U);
}

TEST(Place, HonoursModelMemoryCpus) {
  std::vector<NodeView> nodes{node("a", 8, "A100"), node("b", 8, "H100", 4)};
  const auto on_h100 = place({.ranks = 1, .gpu_share = 1000, .gpu_model = "H100"}, nodes);
  ASSERT_TRUE(on_h100.ok());
  EXPECT_EQ((*on_h100)[0].node, "b");
  EXPECT_FALSE(place({.ranks = 1, .gpu_share = 1000, .gpu_memory = gib(100)}, nodes).ok());
  EXPECT_FALSE(place({.ranks = 5, .nodes = 1, .gpu_share = 1000, .cpus = 4}, nodes).ok());
  EXPECT_FALSE(place({.ranks = 1, .memory = gib(65)}, nodes).ok());
  EXPECT_TRUE(place({.ranks = 1, .memory = gib(64)}, nodes).ok());
}

std::size_t ranks_placed(const Shape& shape, std::vector<NodeView> nodes) {
  const auto places = place(shape, nodes);
  return places ? places->size() : 0;
}

TEST(Place, AnElasticGangGetsTheLargestOfItsCountsThatFits) {
  const Shape listed{.ranks = 16, .rank_counts = {16, 8, 4}, .gpu_share = 1000};
  EXPECT_EQ(ranks_placed(listed, {node("a", 8), node("b", 8)}), 16U);
  EXPECT_EQ(ranks_placed(listed, {node("a", 8), node("b", 7)}), 8U) << "15 would fit, and are not listed";
  EXPECT_EQ(ranks_placed(listed, {node("a", 4), node("b", 3)}), 4U);
  EXPECT_EQ(ranks_placed(listed, {node("a", 3)}), 0U);
  const Shape any{.ranks = 4, .rank_counts = {4, 3, 2, 1}, .gpu_share = 1000};
  EXPECT_EQ(ranks_placed(any, {node("a", 2), node("b", 1)}), 3U);
  EXPECT_EQ(ranks_placed(any, {node("a", 1)}), 1U);
}

TEST(Place, AnElasticGangWithoutRoomNamesItsSmallestCount) {
  std::vector<NodeView> nodes{node("a", 3)};
  const auto places = place({.ranks = 16, .rank_counts = {16, 8, 4}, .nodes = 4, .gpu_share = 1000}, nodes);
  ASSERT_FALSE(places.ok());
  EXPECT_EQ(places.error().message(),
            "needs at least 4 of 16 ranks on 1 node of 1 GPU; 1 node takes work, 3 matching GPUs are free, 3 "
            "such ranks would fit");
  EXPECT_EQ(nodes[0].devices[0].share_free, whole_share) << "nothing was taken";
}

TEST(Place, ASmallerGangTakesInProportionFewerNodes) {
  const Shape shape{.ranks = 8, .rank_counts = {8, 6, 5, 4}, .nodes = 4, .gpu_share = 1000};
  std::vector<NodeView> nodes{node("a", 2), node("b", 2), node("c", 2)};
  const auto three = place(shape, nodes);
  ASSERT_TRUE(three.ok());
  EXPECT_EQ(three->size(), 6U);
  EXPECT_EQ(nodes_of(*three).size(), 3U);
  EXPECT_EQ(ranks_placed(shape, {node("a", 2), node("b", 2), node("c", 1)}), 4U)
      << "6 and 5 need three nodes with room for two";
  EXPECT_EQ(ranks_placed(shape, {node("a", 8)}), 0U) << "four ranks are two nodes";
}

TEST(Schedule, PriorityThenTimeThenId) {
  Snapshot snapshot{.revision = 7, .nodes = {node("a", 1)}, .queued = {}};
  const Shape one{.ranks = 1, .gpu_share = 1000};
  snapshot.queued = {job(1, one, 0, Instant(2s)), job(2, one, 0, Instant(1s)), job(3, one, 5, Instant(3s))};
  const Plan plan = schedule(snapshot, {});
  EXPECT_EQ(plan.revision, 7U);
  ASSERT_EQ(plan.starts.size(), 1U);
  EXPECT_EQ(plan.starts[0].job, JobId(3));
  EXPECT_EQ(plan.waiting.size(), 2U);
}

TEST(Schedule, AnElasticGangLeavesTheRestToTheNext) {
  Snapshot snapshot{.revision = 1, .nodes = {node("a", 6)}, .queued = {}};
  const Shape elastic{.ranks = 8, .rank_counts = {8, 4}, .gpu_share = 1000};
  snapshot.queued = {job(1, elastic), job(2, elastic), job(3, {.ranks = 2, .gpu_share = 1000})};
  const Plan plan = schedule(snapshot, {});
  ASSERT_EQ(plan.starts.size(), 2U);
  EXPECT_EQ(plan.starts[0].job, JobId(1));
  EXPECT_EQ(plan.starts[0].ranks.size(), 4U);
  EXPECT_EQ(plan.starts[1].job, JobId(3));
  EXPECT_EQ(plan.waiting.at(JobId(2)),
            "needs at least 4 of 8 ranks of 1 GPU; 1 node takes work, 2 matching GPUs are free, 2 such ranks "
            "would fit");
}

TEST(Validate, RefusesUnsoundShapes) {
  EXPECT_TRUE(validate({.ranks = 1}).ok());
  EXPECT_FALSE(validate({.ranks = 0}).ok());
  EXPECT_FALSE(validate({.ranks = 1, .nodes = 2}).ok());
  EXPECT_FALSE(validate({.ranks = 5, .ranks_per_node = 2, .nodes = 2}).ok());
  EXPECT_FALSE(validate({.ranks = 1, .gpu_share = 1500}).ok());
  EXPECT_FALSE(validate({.ranks = 1, .gpu_share = -1}).ok());
}

TEST(Validate, CountsOfRanksDescendFromWhatIsWanted) {
  const auto why = [](std::int32_t ranks, std::vector<std::int32_t> counts) {
    const auto sound = validate({.ranks = ranks, .rank_counts = std::move(counts)});
    return sound ? "fine" : sound.error().message();
  };
  EXPECT_EQ(why(8, {}), "fine");
  EXPECT_EQ(why(8, {8}), "fine");
  EXPECT_EQ(why(8, {8, 4, 1}), "fine");
  EXPECT_EQ(why(8, {4}), "rank_counts begins with 4 and ranks is 8: they must be the same");
  EXPECT_EQ(why(8, {8, 4, 4}), "rank_counts must descend, and 4 comes after 4");
  EXPECT_EQ(why(8, {8, 2, 4}), "rank_counts must descend, and 4 comes after 2");
  EXPECT_EQ(why(8, {8, 0}), "a gang has at least one rank");
  std::vector<std::int32_t> many;
  for (std::int32_t count = 257; count > 0; --count) many.push_back(count);
  EXPECT_EQ(why(257, many), "rank_counts has more than 256 entries");
  many.erase(many.begin());
  EXPECT_EQ(why(256, many), "fine");
}

// Whatever is asked for: no device gives more than it has, gangs are whole, and the same input gives the same
// plan.
TEST(Schedule, NeverOverCommits) {
  Prng prng(11);
  for (int round = 0; round < 200; ++round) {
    Snapshot snapshot;
    for (int at = 0; at < 6; ++at)
      snapshot.nodes.push_back(node("n" + std::to_string(at), static_cast<int>(prng.below(9))));
    for (std::uint64_t id = 1; id <= 20; ++id) {
      Shape shape{.ranks = static_cast<std::int32_t>(prng.between(1, 12))};
      const std::int32_t shares[] = {0, 100, 250, 500, 1000, 2000, 8000};
      shape.gpu_share = shares[prng.below(7)];
      for (auto count = shape.ranks; count > 0 && prng.chance(0.4); --count)
        shape.rank_counts.push_back(count);
      if (prng.chance(0.3)) shape.nodes = static_cast<std::int32_t>(prng.between(1, shape.ranks));
      if (prng.chance(0.3)) shape.cpus = static_cast<std::int32_t>(prng.between(1, 8));
      snapshot.queued.push_back(job(id, shape));
    }
    const Plan plan = schedule(snapshot, {});
    std::map<std::pair<std::string, std::int32_t>, std::int32_t> used;
    for (const auto& start : plan.starts) {
      const auto& shape = snapshot.queued[start.job.number() - 1].shape;
      ASSERT_TRUE(runs_with(shape, start.ranks.size()));
      for (const auto& rank : start.ranks) {
        std::int32_t share = 0;
        for (const auto& device : rank.devices) {
          share += device.share;
          ASSERT_LE(used[std::pair(rank.node, device.device)] += device.share, whole_share);
        }
        ASSERT_EQ(share, shape.gpu_share);
      }
    }
    ASSERT_EQ(plan.starts.size() + plan.waiting.size(), snapshot.queued.size());
    const Plan again = schedule(snapshot, {});
    ASSERT_EQ(plan.waiting, again.waiting);
  }
}

}  // namespace
}  // namespace tutti::sched
