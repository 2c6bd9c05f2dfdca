#include "control/sched/place.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

// Places and takes; no ranks if it does not fit.
std::vector<RankPlace> placed(Room& room, const Shape& shape) {
  const auto places = place(room, shape, TightestNode());
  if (!places) return {};
  EXPECT_TRUE(room.fits(shape, *places));
  room.take(shape, *places);
  return room.expand(shape, *places);
}

std::vector<RankPlace> placed(std::vector<NodeView> nodes, const Shape& shape) {
  Room room(std::move(nodes));
  return placed(room, shape);
}

TEST(Place, PacksAGangIntoFewNodes) {
  const auto places = placed({node("a", 4), node("b", 8), node("c", 8)}, {.ranks = 12, .gpu_share = 1000});
  EXPECT_EQ(nodes_of(places).size(), 2U);
  EXPECT_EQ(nodes_of(places).count("a"), 1U) << "the rest of four goes to the node that it fills";
}

TEST(Place, ASmallGangGoesToTheTightestNode) {
  const auto places = placed({node("a", 8), node("b", 2), node("c", 8)}, {.ranks = 2, .gpu_share = 1000});
  EXPECT_EQ(nodes_of(places), std::set<std::string>{"b"});
}

TEST(Place, AGangGoesNowhereThatItAvoids) {
  Shape shape = gpus(2);
  shape.avoid = {"b"};
  EXPECT_EQ(nodes_of(placed({node("a", 8), node("b", 2)}, shape)), std::set<std::string>{"a"});
  EXPECT_TRUE(placed({node("b", 2)}, shape).empty());
  EXPECT_NE(describe_refusal(Room({node("b", 2)}), shape)
                .find("not tried again on 1, where what it ships does not fit"),
            std::string::npos);
  Shape wide = gpus(4);
  wide.avoid = {"a", "gone"};
  EXPECT_EQ(nodes_of(placed({node("a", 4), node("b", 2), node("c", 2)}, wide)),
            (std::set<std::string>{"b", "c"}));
  wide.nodes = 2;
  EXPECT_EQ(nodes_of(placed({node("a", 4), node("b", 2), node("c", 2)}, wide)),
            (std::set<std::string>{"b", "c"}));
  Shape loose{.ranks = 1};
  loose.avoid = {"a"};
  EXPECT_EQ(nodes_of(placed({node("a", 0), node("b", 8)}, loose)), std::set<std::string>{"b"});
}

TEST(Place, IsAllOrNothing) {
  const Room room({node("a", 4), node("b", 4)});
  const Shape nine{.ranks = 9, .gpu_share = 1000};
  EXPECT_FALSE(place(room, nine, TightestNode()));
  EXPECT_EQ(describe_refusal(room, nine),
            "needs 9 ranks of 1 GPU; 2 nodes take work, 8 matching GPUs are free, 8 such ranks would fit");
}

TEST(Place, RanksWithoutResourcesAreBoundedByCpus) {
  Room room({node("a", 0, "", 2), node("b", 0, "", 4)});
  const Shape many{.ranks = 100'000};
  EXPECT_FALSE(place(room, many, TightestNode()));
  EXPECT_NE(describe_refusal(room, many).find("96 such ranks would fit (at most 16 ranks"), std::string::npos)
      << describe_refusal(room, many);
  const Shape all{.ranks = 6 * loose_ranks_per_cpu_max};
  const auto places = place(room, all, TightestNode());
  ASSERT_TRUE(places.has_value());
  EXPECT_TRUE(room.fits(all, *places));
  const Room before = room;
  room.take(all, *places);
  EXPECT_FALSE(place(room, {.ranks = 1}, TightestNode())) << "the ranks of all gangs count";
  EXPECT_TRUE(place(room, {.ranks = 1, .cpus = 2}, TightestNode())) << "CPUs that are asked for are free";
  EXPECT_FALSE(room.fits({.ranks = 1}, {{{0, 1}}, {}}));
  room.give(all, *places);
  EXPECT_TRUE(room.same_free(before));
}

TEST(Place, SliversOfDevicesAreBoundedByCpusToo) {
  Room room({node("a", 2, "H100", 4)});
  const Shape slivers{.ranks = 900, .gpu_share = 1};
  EXPECT_FALSE(place(room, slivers, TightestNode()));
  EXPECT_NE(describe_refusal(room, slivers)
                .find("64 such ranks would fit (at most 16 ranks that ask for neither CPUs nor whole GPUs"),
            std::string::npos)
      << describe_refusal(room, slivers);
  const Room before = room;
  const Shape most{.ranks = 60, .gpu_share = 1};
  const auto places = place(room, most, TightestNode());
  ASSERT_TRUE(places.has_value());
  EXPECT_TRUE(room.fits(most, *places));
  room.take(most, *places);
  EXPECT_FALSE(room.fits({.ranks = 5, .gpu_share = 1}, {{{0, 5}}, {0, 0, 0, 0, 0}}));
  EXPECT_FALSE(place(room, {.ranks = 5}, TightestNode())) << "both kinds count together";
  EXPECT_TRUE(place(room, {.ranks = 4}, TightestNode()));
  EXPECT_TRUE(place(room, {.ranks = 1, .gpu_share = 1000}, TightestNode())) << "a whole one is no sliver";
  EXPECT_TRUE(place(room, {.ranks = 4, .gpu_share = 1, .cpus = 1}, TightestNode()));
  room.give(most, *places);
  EXPECT_TRUE(room.same_free(before));
}

NodeView watching(NodeView view, std::int32_t watch_max) {
  view.watch_max = watch_max;
  return view;
}

TEST(Place, NoNodeGetsMoreRanksThanItCanWatch) {
  Room room({watching(node("a", 0, "", 16), 10)});
  const Room before = room;
  EXPECT_FALSE(place(room, {.ranks = 10}, TightestNode())) << "a gang counts as one more";
  EXPECT_FALSE(place(room, {.ranks = 10, .cpus = 1}, TightestNode())) << "whatever its ranks ask for";
  EXPECT_FALSE(room.fits({.ranks = 10, .cpus = 1}, {{{0, 10}}, {}}));
  const Shape first{.ranks = 4, .cpus = 1};
  const auto places = place(room, first, TightestNode());
  ASSERT_TRUE(places.has_value());
  EXPECT_TRUE(room.fits(first, *places));
  room.take(first, *places);
  EXPECT_FALSE(place(room, {.ranks = 5}, TightestNode())) << "the ranks of all gangs count";
  EXPECT_TRUE(place(room, {.ranks = 4}, TightestNode()));
  EXPECT_EQ(describe_refusal(room, {.ranks = 5, .cpus = 1}),
            "needs 5 ranks, 1 CPUs; 1 node takes work, 4 such ranks would fit; 1 node has room for more, but "
            "the agent there may not open enough files to watch them (`ulimit -Hn`)");
  room.give(first, *places);
  EXPECT_TRUE(room.same_free(before));
}

TEST(Place, AGangIsSpreadOverNodesThatCanWatchIt) {
  const auto places = placed({watching(node("a", 8), 3), watching(node("b", 8), 4), node("c", 8)}, gpus(13));
  ASSERT_EQ(places.size(), 13U);
  EXPECT_EQ(
      std::count_if(places.begin(), places.end(), [](const RankPlace& rank) { return rank.node == "a"; }), 2);
  EXPECT_TRUE(placed({watching(node("a", 8), 3), watching(node("b", 8), 4)}, gpus(6)).empty());
}

// Less is left there than runs already: its agent was started anew and may open fewer files.
TEST(Place, ANodeThatRunsMoreThanItCanWatchTakesNothing) {
  Room room({watching(node("a", 8), 2)});
  const Shape three = gpus(3);
  room.take(three, {{{0, 3}}, {0, 1, 2}});
  EXPECT_FALSE(place(room, gpus(1), TightestNode()));
  EXPECT_FALSE(room.fits(gpus(1), {{{0, 1}}, {3}}));
}

TEST(Place, SharesADeviceAndKeepsOthersWhole) {
  Room room({node("a", 2)});
  for (const auto& rank : placed(room, {.ranks = 4, .gpu_share = 250}))
    EXPECT_EQ(rank.devices, (std::vector<DeviceShare>{{0, 250}}));
  EXPECT_EQ(room.shares_free(0)[1], whole_share);
  EXPECT_TRUE(placed(room, {.ranks = 2, .gpu_share = 1000}).empty()) << "one device is full";
}

TEST(Place, HonoursNodesAndRanksPerNode) {
  const std::vector<NodeView> nodes{node("a", 8), node("b", 8), node("c", 8)};
  const auto spread = placed(nodes, {.ranks = 4, .nodes = 2, .gpu_share = 1000});
  ASSERT_EQ(nodes_of(spread).size(), 2U);
  EXPECT_EQ(spread[0].node, spread[1].node) << "ranks of one node are neighbours";
  EXPECT_EQ(nodes_of(placed(nodes, {.ranks = 6, .ranks_per_node = 2, .gpu_share = 1000})).size(), 3U);
}

TEST(Place, HonoursModelMemoryCpus) {
  const Room room({node("a", 8, "A100"), node("b", 8, "H100", 4)});
  const auto fits = [&](const Shape& shape) { return place(room, shape, TightestNode()).has_value(); };
  Room copy = room;
  EXPECT_EQ(placed(copy, {.ranks = 1, .gpu_share = 1000, .gpu_model = "H100"})[0].node, "b");
  EXPECT_EQ(placed(copy, {.ranks = 1, .gpu_share = 1000, .gpu_model = "h100"})[0].node, "b");
  EXPECT_TRUE(fits({.ranks = 16, .gpu_share = 1000, .gpu_model = "H100|A100"}));
  EXPECT_FALSE(fits({.ranks = 9, .gpu_share = 1000, .gpu_model = "H100"}));
  EXPECT_FALSE(fits({.ranks = 1, .gpu_share = 1000, .gpu_model = "V100"}));
  EXPECT_FALSE(fits({.ranks = 1, .gpu_share = 1000, .gpu_memory = gib(100)}));
  EXPECT_FALSE(fits({.ranks = 5, .nodes = 1, .gpu_share = 1000, .cpus = 4}));
  EXPECT_FALSE(fits({.ranks = 1, .memory = gib(65)}));
  EXPECT_TRUE(fits({.ranks = 1, .memory = gib(64)}));
}

TEST(Place, AnElasticGangGetsTheLargestOfItsCountsThatFits) {
  const Shape listed{.ranks = 16, .rank_counts = {16, 8, 4}, .gpu_share = 1000};
  EXPECT_EQ(placed({node("a", 8), node("b", 8)}, listed).size(), 16U);
  EXPECT_EQ(placed({node("a", 8), node("b", 7)}, listed).size(), 8U) << "15 would fit, and are not listed";
  EXPECT_EQ(placed({node("a", 4), node("b", 3)}, listed).size(), 4U);
  EXPECT_EQ(placed({node("a", 3)}, listed).size(), 0U);
  const Shape any{.ranks = 4, .rank_counts = {4, 3, 2, 1}, .gpu_share = 1000};
  EXPECT_EQ(placed({node("a", 2), node("b", 1)}, any).size(), 3U);
  EXPECT_EQ(placed({node("a", 1)}, any).size(), 1U);
}

TEST(Place, AnElasticGangWithoutRoomNamesItsSmallestCount) {
  EXPECT_EQ(describe_refusal(Room({node("a", 3)}),
                             {.ranks = 16, .rank_counts = {16, 8, 4}, .nodes = 4, .gpu_share = 1000}),
            "needs at least 4 of 16 ranks on 1 node of 1 GPU; 1 node takes work, 3 matching GPUs are free, 3 "
            "such ranks would fit");
}

TEST(Place, ASmallerGangTakesInProportionFewerNodes) {
  const Shape shape{.ranks = 8, .rank_counts = {8, 6, 5, 4}, .nodes = 4, .gpu_share = 1000};
  const auto three = placed({node("a", 2), node("b", 2), node("c", 2)}, shape);
  EXPECT_EQ(three.size(), 6U);
  EXPECT_EQ(nodes_of(three).size(), 3U);
  EXPECT_EQ(placed({node("a", 2), node("b", 2), node("c", 1)}, shape).size(), 4U)
      << "6 and 5 need three nodes with room for two";
  EXPECT_TRUE(placed({node("a", 8)}, shape).empty()) << "four ranks are two nodes";
}

// Two pods of two racks of two nodes.
std::vector<NodeView> fabric(int gpus = 8) {
  std::vector<NodeView> nodes;
  for (const char* place : {"p1/r1", "p1/r2", "p2/r1", "p2/r2"}) {
    for (const char* name : {"a", "b"})
      nodes.push_back(node(std::string(place) + "-" + name, gpus, "H100", 16, "s/" + std::string(place)));
  }
  return nodes;
}

TEST(Place, AGangGoesToTheSmallestPartThatHoldsIt) {
  Room room(fabric());
  EXPECT_EQ(nodes_of(placed(room, {.ranks = 16, .gpu_share = 1000})),
            (std::set<std::string>{"p1/r1-a", "p1/r1-b"}));
  // A whole pod is kept for what needs it: four go to the rest of the pod that is begun.
  EXPECT_EQ(nodes_of(placed(room, {.ranks = 4, .gpu_share = 1000})), std::set<std::string>{"p1/r2-a"});
  EXPECT_EQ(nodes_of(placed(room, {.ranks = 32, .gpu_share = 1000})).size(), 4U);
  EXPECT_EQ(room.whole_in(0, ~Kinds{0}), 12);
}

TEST(Place, WithinIsKept) {
  Room room(fabric(2));
  const Shape five{.ranks = 5, .gpu_share = 1000, .within = Level::rack};
  EXPECT_TRUE(placed(room, five).empty());
  EXPECT_FALSE(placed(room, {.ranks = 4, .gpu_share = 1000, .within = Level::rack}).empty());
  EXPECT_TRUE(placed(room, {.ranks = 3, .gpu_share = 1000, .within = Level::nvlink}).empty())
      << "without a name for it, a node is its own NVLink group";
  const auto pod = placed(room, {.ranks = 8, .gpu_share = 1000, .within = Level::pod});
  ASSERT_EQ(pod.size(), 8U);
  for (const auto& rank : pod) EXPECT_TRUE(rank.node.starts_with("p2/")) << rank.node;
}

TEST(Place, RanksFollowTheFabric) {
  const auto places = placed(fabric(), {.ranks = 64, .gpu_share = 1000});
  ASSERT_EQ(places.size(), 64U);
  for (std::size_t rank = 1; rank < places.size(); ++rank)
    EXPECT_LE(places[rank - 1].node, places[rank].node);
}

TEST(Place, AGangDoesNotMixModelsWhereItNeedNot) {
  const auto places = placed({node("a", 8, "A100"), node("b", 8), node("c", 8, "A100"), node("d", 8)},
                             {.ranks = 16, .gpu_share = 1000});
  EXPECT_EQ(nodes_of(places), (std::set<std::string>{"a", "c"}));
}

}  // namespace
}  // namespace tutti::sched
