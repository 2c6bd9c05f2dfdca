#include "control/cluster/fabric.hpp"

#include <gtest/gtest.h>

namespace tutti::cluster {
namespace {

const std::set<NodeName> abcd{"a", "b", "c", "d"};

// Every direction of every pair, all alike.
Fabric even(const std::set<NodeName>& nodes) {
  Fabric fabric;
  for (const auto& from : nodes) {
    for (const auto& to : nodes) {
      if (from != to) fabric[{from, to}] = {from, to, 10us, Bytes(10'000'000'000), Instant(5s)};
    }
  }
  return fabric;
}

std::vector<Link> links_of(const Fabric& fabric) {
  std::vector<Link> links;
  for (const auto& [ends, link] : fabric) links.push_back(link);
  return links;
}

TEST(SlowLinks, NoneAmongEquals) { EXPECT_TRUE(slow_links(even(abcd)).empty()); }

TEST(SlowLinks, NothingToCompareWith) {
  EXPECT_TRUE(slow_links({}).empty());
  Fabric two = even({"a", "b"});
  two[{"a", "b"}].bandwidth = Bytes(1);
  EXPECT_TRUE(slow_links(two).empty()) << "the way back is no neighbour";
  Fabric one_neighbour = even({"a", "b"});
  one_neighbour[{"a", "b"}].bandwidth = Bytes(1);
  one_neighbour[{"a", "c"}] = {"a", "c", 10us, Bytes(10'000'000'000), {}};
  EXPECT_TRUE(slow_links(one_neighbour).empty());
  one_neighbour[{"c", "a"}] = {"c", "a", 10us, Bytes(10'000'000'000), {}};
  EXPECT_EQ(slow_links(one_neighbour).size(), 1U) << "two neighbours are enough";
}

TEST(SlowLinks, ByBandwidth) {
  Fabric fabric = even(abcd);
  fabric[{"a", "b"}].bandwidth = Bytes(7'000'000'000);
  EXPECT_TRUE(slow_links(fabric).empty()) << "0.7 of them is not below it";
  fabric[{"a", "b"}].bandwidth = Bytes(4'100'000'000);
  const auto slow = slow_links(fabric);
  ASSERT_EQ(slow.size(), 1U) << "the other direction is fine";
  EXPECT_EQ(slow.begin()->first, std::pair(NodeName("a"), NodeName("b")));
  EXPECT_EQ(slow.begin()->second.text(), "41% of its neighbours");
}

TEST(SlowLinks, ByLatency) {
  Fabric fabric = even(abcd);
  fabric[{"c", "d"}].latency = 30us;
  EXPECT_TRUE(slow_links(fabric).empty());
  fabric[{"c", "d"}].latency = 42us;
  auto slow = slow_links(fabric);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow.at({"c", "d"}).text(), "latency 4.2 times its neighbours'");
  fabric[{"c", "d"}].bandwidth = Bytes(1'000'000'000);
  slow = slow_links(fabric);
  EXPECT_EQ(slow.at({"c", "d"}).text(), "10% of its neighbours, latency 4.2 times its neighbours'");
}

TEST(SlowLinks, ANodeWithABadCard) {
  Fabric fabric = even({"a", "b", "c", "d", "e"});
  for (auto& [ends, link] : fabric) {
    if (link.from == "e" || link.to == "e") link.bandwidth = Bytes(2'000'000'000);
  }
  const auto slow = slow_links(fabric);
  EXPECT_EQ(slow.size(), 8U);
  for (const auto& [ends, how] : slow) {
    EXPECT_TRUE(ends.first == "e" || ends.second == "e");
    EXPECT_NEAR(how.bandwidth_ratio, 2.0 / 6, 1e-9) << "half of the neighbours are as bad";
  }
}

TEST(SlowLinks, AnOddNumberOfNeighbours) {
  Fabric fabric;
  const auto add = [&](const NodeName& from, const NodeName& to, std::int64_t bandwidth) {
    fabric[{from, to}] = {from, to, 10us, Bytes(bandwidth), {}};
  };
  add("a", "b", 60);
  add("a", "c", 10);
  add("b", "c", 100);
  add("b", "d", 1000);
  const auto slow = slow_links(fabric);
  ASSERT_TRUE(slow.contains({"a", "b"}));
  EXPECT_DOUBLE_EQ(slow.at({"a", "b"}).bandwidth_ratio, 0.6) << "the middle one of three counts";
}

TEST(MakeFabric, TakesWhatIsSoundAndSaysWhatIsNot) {
  const Fabric whole = even(abcd);
  const auto made = make_fabric(links_of(whole), abcd);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(*made, whole);
  EXPECT_TRUE(make_fabric({}, {}).ok());
  const auto why = [&](const Link& link) {
    const auto refused = make_fabric({link}, abcd);
    return refused ? "fine" : refused.error().message();
  };
  EXPECT_EQ(why({"a", "x", 1us, Bytes(1), {}}), "there is no node 'x'");
  EXPECT_EQ(why({"a", "a", 1us, Bytes(1), {}}), "a link joins two different nodes, not a and itself");
  EXPECT_EQ(why({"a", "b", 0us, Bytes(1), {}}), "the latency of a link is above 0 and at most 1m");
  EXPECT_EQ(why({"a", "b", 61s, Bytes(1), {}}), "the latency of a link is above 0 and at most 1m");
  EXPECT_EQ(why({"a", "b", 1us, Bytes(0), {}}),
            "the bandwidth of a link is above 0 and at most 1000000 GB/s");
  const Link link{"a", "b", 1us, Bytes(1), {}};
  EXPECT_EQ(make_fabric({link, link}, abcd).error().message(), "the link from a to b is there twice");
  const auto many = make_fabric(std::vector<Link>(fabric_links_max + 1, link), abcd);
  EXPECT_EQ(many.error().message(), "a fabric has at most 16256 links, these are 16257");
}

TEST(OnlyBetween, DropsWhatTouchesOthers) {
  const Fabric fabric = even(abcd);
  EXPECT_EQ(only_between(fabric, abcd), fabric);
  EXPECT_EQ(only_between(fabric, {"a", "b", "z"}), even({"a", "b"}));
  EXPECT_TRUE(only_between(fabric, {}).empty());
}

}  // namespace
}  // namespace tutti::cluster
