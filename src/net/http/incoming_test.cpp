#include "net/http/incoming.hpp"

#include <deque>

#include <gtest/gtest.h>

#include "base/scarcity/scarcity.hpp"

namespace tutti::net {
namespace {

struct IncomingTest : testing::Test {
  Incoming::Arrival& arrive(const std::string& address, std::size_t bytes) {
    Incoming::Arrival& arrival = arrivals.emplace_back(incoming, address, [this] { ++let_go; });
    arrival.hold(bytes);
    return arrival;
  }

  int let_go = 0;
  int given_back = 0;
  std::shared_ptr<Incoming> incoming = std::make_shared<Incoming>(
      Incoming::Limits{.bytes = 1'000, .bytes_per_address = 600}, [this] { ++given_back; });
  std::deque<Incoming::Arrival> arrivals;
};

TEST_F(IncomingTest, TheLargeOnesThatTakeLongMakeRoomForTheOthers) {
  const auto& slow = arrive("a", 400);
  auto& quick = arrive("b", 400);
  EXPECT_EQ(let_go, 0);
  const auto& next = arrive("c", 300);
  EXPECT_TRUE(slow.was_let_go());
  EXPECT_FALSE(quick.was_let_go());
  EXPECT_FALSE(next.was_let_go());
  EXPECT_EQ(incoming->bytes(), 1'100U) << "it has not gone yet";
  arrivals.pop_front();
  EXPECT_EQ(incoming->bytes(), 700U);
  quick.release();
  EXPECT_EQ(incoming->bytes(), 300U);
  arrivals.clear();
  EXPECT_EQ(incoming->bytes(), 0U);
  EXPECT_EQ(let_go, 1);
}

TEST_F(IncomingTest, AnAddressMakesRoomForItself) {
  const auto& other = arrive("other", 300);
  for (int at = 0; at < 20; ++at) arrive("greedy", 100);
  EXPECT_FALSE(other.was_let_go());
  EXPECT_GE(let_go, 14);
}

TEST_F(IncomingTest, WhatIsAloneAndTooLargeIsLetGoItself) {
  EXPECT_TRUE(arrive("a", 601).was_let_go());
  EXPECT_TRUE(incoming->has_room("a", 599)) << "it leaves";
  EXPECT_FALSE(incoming->has_room("a", 600));
}

TEST_F(IncomingTest, WhatIsWholeIsNotLetGoAndKeepsOthersOut) {
  auto& whole = arrive("a", 600);
  whole.complete();
  EXPECT_FALSE(incoming->has_room("a", 0));
  EXPECT_TRUE(incoming->has_room("b", 399));
  EXPECT_FALSE(incoming->has_room("b", 400));
  auto& second = arrive("b", 400);
  second.complete();
  EXPECT_FALSE(incoming->has_room("c", 0));
  EXPECT_TRUE(arrive("c", 1).was_let_go());
  EXPECT_FALSE(whole.was_let_go());
  second.release();
  EXPECT_TRUE(incoming->has_room("c", 100));
  EXPECT_FALSE(incoming->has_room("a", 0));
}

TEST_F(IncomingTest, MemoryIsGivenBackWhenMuchOfItIsGone) {
  constexpr std::size_t much_bytes = std::size_t{64} << 20;
  incoming =
      std::make_shared<Incoming>(Incoming::Limits{4 * much_bytes, 4 * much_bytes}, [this] { ++given_back; });
  arrive("a", much_bytes);
  arrive("b", much_bytes);
  arrivals.pop_front();
  EXPECT_EQ(given_back, 0);
  arrivals.pop_front();
  EXPECT_EQ(given_back, 1);
  arrive("a", much_bytes / 2);
  arrivals.clear();
  EXPECT_EQ(given_back, 1) << "that little is soon used again";
}

// Whatever of it there is no memory for.
TEST_F(IncomingTest, WhatCannotBeCountedIsNotHeld) {
  int not_counted = 0;
  const auto& other = arrive("a", 50);
  for (std::size_t given_bytes = 0; given_bytes < 256; given_bytes += 8) {
    // Of an address that is there already, and of another one.
    const std::string address = given_bytes % 16 == 0 ? "a" : "c";
    Incoming::Arrival arrival(incoming, address, [this] { ++let_go; });
    bool is_counted = true;
    {
      const Scarcity scarcity(given_bytes);
      try {
        arrival.hold(500);
      } catch (const std::bad_alloc&) {
        is_counted = false;
      }
    }
    not_counted += is_counted ? 0 : 1;
    EXPECT_EQ(incoming->bytes(), is_counted ? 550U : 50U);
    arrival.release();
    EXPECT_EQ(incoming->bytes(), 50U);
    EXPECT_FALSE(arrive("b", 600).was_let_go()) << "all of the room is there";
    arrivals.pop_back();
  }
  EXPECT_GT(not_counted, 0);
  EXPECT_FALSE(other.was_let_go());
  EXPECT_EQ(let_go, 0);
}

}  // namespace
}  // namespace tutti::net
