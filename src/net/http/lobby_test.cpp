#include "net/http/lobby.hpp"

#include <vector>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tutti::net
