#include "net/http/lobby.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "base/scarcity/scarcity.hpp"

namespace tutti::net {
namespace {

struct LobbyTest : testing::Test {
  Lobby lobby{4, 2};
  std::vector<int> closed;

  Lobby::Guest enter(int number, const std::string& address) {
    return lobby.enter(address, [this, number] { closed.push_back(number); });
  }
};

TEST_F(LobbyTest, TheOldestOfAnAddressMakesRoomForItsNext) {
  enter(1, "b");
  enter(2, "a");
  enter(3, "a");
  EXPECT_TRUE(closed.empty());
  enter(4, "a");
  EXPECT_EQ(closed, std::vector{2}) << "nobody of another address";
  EXPECT_EQ(lobby.guests(), 3U);
}

TEST_F(LobbyTest, TheOldestOfAllMakesRoomForOneOfANewAddress) {
  enter(1, "b");
  enter(2, "a");
  enter(3, "a");
  enter(4, "b");
  enter(5, "c");
  EXPECT_EQ(closed, std::vector{1});
}

TEST_F(LobbyTest, WhoHasShownATokenIsNoVictim) {
  const auto agent = enter(1, "a");
  enter(2, "a");
  lobby.leave(agent);
  lobby.leave(agent);
  enter(3, "a");
  EXPECT_TRUE(closed.empty());
  enter(4, "a");
  EXPECT_EQ(closed, std::vector{2});
}

TEST_F(LobbyTest, NobodyIsThereToMakeRoom) {
  EXPECT_FALSE(lobby.make_room());
  EXPECT_FALSE(lobby.make_room("a"));
  lobby.leave(enter(1, "a"));
  EXPECT_FALSE(lobby.make_room("a"));
}

// Whatever of it there is no memory for.
TEST_F(LobbyTest, WhoCannotEnterIsNotThere) {
  int kept_out = 0;
  for (std::size_t given_bytes = 0; given_bytes < 256; given_bytes += 8) {
    Lobby::Guest guest = 0;
    {
      const Scarcity scarcity(given_bytes);
      try {
        guest = enter(1, "a");
      } catch (const std::bad_alloc&) {
        ++kept_out;
      }
    }
    EXPECT_EQ(lobby.guests(), guest == 0 ? 0U : 1U);
    EXPECT_EQ(lobby.largest_address(), guest == 0 ? "" : "a");
    lobby.leave(guest);
    EXPECT_FALSE(lobby.make_room());
  }
  EXPECT_GT(kept_out, 0);
}

}  // namespace
}  // namespace tutti::net
