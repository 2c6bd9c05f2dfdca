#include "control/driver/inbox.hpp"

#include <algorithm>
#include <new>

#include <gtest/gtest.h>

#include "base/scarcity/scarcity.hpp"

namespace tutti::driver {
namespace {

using cluster::RankReport;
using cluster::RankState;
using cluster::Reported;

RankReport report(std::int32_t rank, RankState state, std::string detail = "") {
  return {cluster::JobId(7), 0, rank, {state, 0, std::move(detail)}};
}

struct InboxTest : testing::Test {
  Inbox inbox;

  bool add(cluster::Event event, Reply reply = nullptr) {
    Item item{std::move(event), std::move(reply), nullptr};
    return inbox.add(item);
  }
  // What a turn would hear of the node.
  static std::vector<RankReport> heard(const std::vector<Item>& items, const std::string& node) {
    std::vector<RankReport> all;
    for (const Item& item : items) {
      const auto* reported = std::get_if<Reported>(&item.event);
      if (reported != nullptr && reported->node == node)
        all.insert(all.end(), reported->ranks.begin(), reported->ranks.end());
    }
    return all;
  }
};

TEST_F(InboxTest, OfWhatARankSaysAgainAndAgainTheNewestIsHeard) {
  add(Reported{"a", report(0, RankState::started)});
  for (int word = 0; word < 100'000; ++word)
    add(Reported{"a", report(0, RankState::started, std::to_string(word))});
  add(Reported{"a", report(1, RankState::started)});
  add(Reported{"a", report(0, RankState::exited)});
  const auto items = inbox.take();
  EXPECT_EQ(items.size(), 1U);
  const auto reports = heard(items, "a");
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_EQ(reports[0].status.detail, "99999");
  EXPECT_EQ(reports[1].rank, 1);
  EXPECT_EQ(reports[2].status.state, RankState::exited) << "in the order in which it happened";
  EXPECT_TRUE(inbox.empty());
}

TEST_F(InboxTest, OfSeveralEndsOfARankTheFirstIsHeard) {
  add(Reported{"a", report(0, RankState::exited, "the end")});
  add(Reported{"a", report(0, RankState::exited, "another")});
  add(Reported{"a", report(0, RankState::started, "an echo")});
  const auto reports = heard(inbox.take(), "a");
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].status.detail, "the end");
}

TEST_F(InboxTest, ANodeWithMuchToSayDelaysItself) {
  std::vector<RankReport> flood;
  for (std::int32_t rank = 0; rank < 50'000; ++rank) flood.push_back(report(rank, RankState::started));
  add(Reported{"a", flood});
  for (int node = 0; node < 100; ++node)
    add(Reported{"b" + std::to_string(node), report(0, RankState::exited)});
  const auto first = inbox.take();
  EXPECT_EQ(heard(first, "a").size(), reports_of_node_per_turn_max);
  for (int node = 0; node < 100; ++node) EXPECT_EQ(heard(first, "b" + std::to_string(node)).size(), 1U);
  std::size_t told = heard(first, "a").size();
  while (!inbox.empty()) {
    const auto more = heard(inbox.take(), "a");
    ASSERT_FALSE(more.empty());
    EXPECT_EQ(more.front().rank, static_cast<std::int32_t>(told));
    told += more.size();
  }
  EXPECT_EQ(told, flood.size());
}

// What a node runs, of which there may be much.
cluster::Hello large_hello(const std::string& node, std::int32_t ranks, const std::string& location = "") {
  cluster::Hello hello{node, location, "", 1, {}, {}};
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    hello.ranks.push_back(report(rank, RankState::started, std::string(1'000, 'x')));
  return hello;
}

TEST_F(InboxTest, OfANodeThatSaysHelloAgainAndAgainTheLastIsHeard) {
  for (int again = 0; again < 1'000; ++again) add(large_hello("a", 1'000, std::to_string(again)));
  EXPECT_TRUE(inbox.take_missed_nodes().empty()) << "none of it stays in memory but the last";
  add(Reported{"a", report(0, RankState::exited)});
  add(large_hello("b", 1));
  std::vector<std::string> heard_of_a;
  std::size_t reports = 0;
  while (!inbox.empty()) {
    const auto items = inbox.take();
    for (const Item& item : items) {
      const auto* said = std::get_if<cluster::Hello>(&item.event);
      if (said != nullptr && said->node == "a" && !item.query) heard_of_a.push_back(said->location);
    }
    reports += heard(items, "a").size();
  }
  EXPECT_EQ(heard_of_a, std::vector<std::string>{"999"});
  EXPECT_EQ(reports, 1U) << "what was said behind it";
  add(large_hello("a", 1));
  EXPECT_EQ(inbox.take().size(), 1U);
}

TEST_F(InboxTest, WhatManyNodesSayAtOnceIsBoundedAndTheyAreAskedAgain) {
  std::set<std::string> missed;
  for (int node = 0; missed.empty() && node < 100; ++node) {
    add(large_hello("n" + std::to_string(node), 8'000));
    missed = inbox.take_missed_nodes();
  }
  ASSERT_EQ(missed.size(), 1U);
  while (!inbox.empty()) inbox.take();
  add(large_hello(*missed.begin(), 8'000));
  EXPECT_TRUE(inbox.take_missed_nodes().empty());
}

// Whatever of it there is no memory for: its connection ends, and what is said on the next one is heard.
TEST_F(InboxTest, WhatThereIsNoMemoryForTakesNothingElseAlong) {
  const std::string node(40, 'n');
  cluster::JobSpec spec;
  spec.user = std::string(40, 'u');
  const std::vector<cluster::Event> events{Reported{node, report(5, RankState::started)},
                                           large_hello(node, 1), cluster::Submit{{spec}}};
  int not_kept = 0;
  for (std::size_t given_bytes = 0; given_bytes < 2'048; given_bytes += 8) {
    for (const cluster::Event& event : events) {
      Inbox scarce;
      Item before{Reported{node, report(0, RankState::started)}, nullptr, nullptr};
      if (std::holds_alternative<cluster::Hello>(event)) scarce.add(before);
      Item item{event, [](auto) {}, nullptr};
      {
        const Scarcity scarcity(given_bytes);
        try {
          scarce.add(item);
        } catch (const std::bad_alloc&) {
          ++not_kept;
        }
      }
      Item end{Reported{node, report(1, RankState::exited)}, nullptr, nullptr};
      scarce.add(end);
      std::vector<RankReport> reports;
      while (!scarce.empty()) {
        for (const RankReport& told : heard(scarce.take(), node)) reports.push_back(told);
      }
      EXPECT_EQ(std::count_if(reports.begin(), reports.end(),
                              [](const RankReport& told) { return told.status.state == RankState::exited; }),
                1)
          << given_bytes;
      EXPECT_EQ(scarce.asked(), 0U) << given_bytes;
    }
  }
  EXPECT_GT(not_kept, 0);
}

TEST_F(InboxTest, WhatIsTooMuchIsDroppedAndThatNodeAloneIsAskedAgain) {
  for (std::int32_t rank = 0; rank < 5'000; ++rank)
    add(Reported{"a", report(rank, RankState::exited, std::string(8 << 10, 'x'))});
  EXPECT_EQ(inbox.take_missed_nodes(), std::set<std::string>{"a"});
  EXPECT_FALSE(inbox.take_missed());
  std::size_t bytes = 0;
  while (!inbox.empty()) {
    for (const RankReport& one : heard(inbox.take(), "a")) bytes += one.status.detail.size();
  }
  EXPECT_LE(bytes, reports_waiting_bytes_max);
  EXPECT_TRUE(inbox.take_missed_nodes().empty());
}

TEST_F(InboxTest, WhatAllNodesReportIsBoundedToo) {
  const std::string detail(8 << 10, 'x');
  std::size_t nodes = 0;
  for (; inbox.take_missed_nodes().empty() && nodes < 40; ++nodes) {
    std::vector<RankReport> much;
    for (std::int32_t rank = 0; rank < 1'900; ++rank) much.push_back(report(rank, RankState::exited, detail));
    add(Reported{"n" + std::to_string(nodes), much});
  }
  EXPECT_LT(nodes, 20U);
  cluster::Hello hello;
  hello.node = "n0";
  add(hello);
  add(Reported{"other", report(0, RankState::exited, detail)});
  EXPECT_TRUE(inbox.take_missed_nodes().empty()) << "there is room again";
}

TEST_F(InboxTest, AHelloReplacesWhatWasReportedBeforeItAndComesBeforeWhatIsReportedAfter) {
  add(Reported{"a", report(0, RankState::started)});
  cluster::Hello hello;
  hello.node = "a";
  add(hello);
  add(Reported{"a", report(0, RankState::exited)});
  const auto items = inbox.take();
  ASSERT_EQ(items.size(), 3U);
  EXPECT_TRUE(std::get<Reported>(items[0].event).ranks.empty());
  EXPECT_TRUE(std::holds_alternative<cluster::Hello>(items[1].event));
  ASSERT_EQ(std::get<Reported>(items[2].event).ranks.size(), 1U);
}

TEST_F(InboxTest, LargeSubmitsAreNotTakenAllAtOnce) {
  cluster::JobSpec spec;
  spec.command = {std::string(1 << 20, 'x')};
  for (int job = 0; job < 100; ++job) add(cluster::Submit{{spec}}, [](const auto&) {});
  EXPECT_EQ(inbox.asked(), 100U);
  const std::size_t taken = inbox.take().size();
  EXPECT_LE(taken, submit_bytes_per_turn_max >> 20);
  EXPECT_GT(taken, 1U);
  EXPECT_EQ(inbox.asked(), 100U - taken);
}

TEST_F(InboxTest, SubmitsThatWaitAreBoundedAndLeaveRoomForThoseOfOthers) {
  const auto array_of = [](const std::string& user) {
    cluster::JobSpec spec;
    spec.user = user;
    spec.workdir = std::string(1'500, 'w');
    return cluster::Submit{std::vector<cluster::JobSpec>(5'000, spec)};
  };
  std::size_t taken = 0;
  while (taken < 100 && add(array_of("ann"), [](const auto&) {})) ++taken;
  EXPECT_GT(taken, 1U);
  EXPECT_LT(taken * 5'000 * 1'500, submit_waiting_bytes_max);
  EXPECT_EQ(inbox.asked(), taken) << "one that is refused does not wait";
  EXPECT_TRUE(add(array_of("bob"), [](const auto&) {}));
  while (!inbox.empty()) inbox.take();
  EXPECT_TRUE(add(array_of("ann"), [](const auto&) {})) << "there is room again";
}

// The first of each is small, and the other is what takes the room.
TEST_F(InboxTest, EachJobOfASubmitCounts) {
  cluster::JobSpec large;
  large.command = {std::string(1 << 20, 'x')};
  for (int submit = 0; submit < 40; ++submit)
    add(cluster::Submit{{cluster::JobSpec(), large}}, [](const auto&) {});
  EXPECT_LE(inbox.take().size(), submit_bytes_per_turn_max >> 20);
}

TEST_F(InboxTest, ATurnTakesFewOfWhatIsAskedOfWholeArrays) {
  for (int request = 0; request < 100; ++request) {
    add(cluster::Release{cluster::JobId(1), true}, [](const auto&) {});
    add(cluster::Cancel{cluster::JobId(1), "", true}, [](const auto&) {});
  }
  EXPECT_EQ(inbox.take().size(), effort_per_turn_max / effort_of_whole_array);
  Inbox others;
  for (int request = 0; request < 100; ++request) {
    Item item{cluster::Cancel{cluster::JobId(1), "", false}, nullptr, nullptr};
    others.add(item);
  }
  EXPECT_EQ(others.take().size(), 100U);
}

TEST_F(InboxTest, WhenTooMuchWaitsRequestsAreRefused) {
  for (std::size_t item = 0; item < waiting_items_max; ++item) add(cluster::Tick{});
  bool answered = false;
  EXPECT_FALSE(add(cluster::Tick{}, [&](const auto&) { answered = true; }));
  EXPECT_FALSE(inbox.take_missed()) << "who asked is told";
  EXPECT_FALSE(add(cluster::Heard{"a"}));
  EXPECT_TRUE(inbox.take_missed());
}

}  // namespace
}  // namespace tutti::driver
