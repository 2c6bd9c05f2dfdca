#include "node/agent/room.hpp"

#include <string>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

struct RoomTest : testing::Test {
  static Room::Attempt job(std::uint64_t number) { return {cluster::JobId(number), 0}; }
  void wait(std::uint64_t number, std::size_t ranks) {
    room.wait(job(number), ranks, [this, number] { begun += std::to_string(number); });
  }
  // It has ranks on other nodes.
  void wait_in_part(std::uint64_t number, std::size_t ranks) {
    room.wait(
        job(number), ranks, [this, number] { begun += std::to_string(number); },
        [this, number] {
          given_up += std::to_string(number);
          loop.stop();
        });
  }

  net::Loop loop;
  Room room{loop, 10, 20ms};
  std::string begun;
  std::string given_up;
};

TEST_F(RoomTest, WhoFindsNoneWaitsInTurnUntilOthersHaveLeft) {
  EXPECT_TRUE(room.enter(job(1), 4));
  room.start(job(1), 4);
  EXPECT_TRUE(room.enter(job(2), 4));
  room.start(job(2), 4);
  EXPECT_EQ(room.files(), 10U) << "a file for each rank, and one for each port";
  EXPECT_FALSE(room.enter(job(3), 4));
  wait(3, 4);
  wait(4, 1);
  EXPECT_FALSE(room.enter(job(5), 1)) << "not before those who wait";
  EXPECT_EQ(begun, "");
  room.leave(job(1));
  EXPECT_EQ(begun, "3") << "the first, and there is no room for the second";
  room.leave(job(2));
  EXPECT_EQ(begun, "34");
  room.leave(job(3));
  room.leave(job(4));
  EXPECT_EQ(room.files(), 0U);
}

TEST_F(RoomTest, WhoIsInGetsInWithTheRest) {
  EXPECT_TRUE(room.enter(job(1), 8));
  room.start(job(1), 8);
  EXPECT_TRUE(room.enter(job(1), 8)) << "the rest of a gang would wait for itself";
  room.start(job(1), 8);
  EXPECT_EQ(room.files(), 17U);
  room.leave(job(1));
  EXPECT_EQ(room.files(), 0U);
}

TEST_F(RoomTest, OneAloneGetsInWhateverItTakes) {
  wait(1, 100);
  EXPECT_EQ(begun, "1");
  wait(2, 1);
  EXPECT_EQ(begun, "1");
  room.leave(job(1));
  EXPECT_EQ(begun, "12");
}

TEST_F(RoomTest, WhoDoesNotWantToWaitHoldsUpNobody) {
  EXPECT_TRUE(room.enter(job(1), 7));
  wait(2, 5);
  wait(3, 1);
  EXPECT_EQ(begun, "");
  EXPECT_TRUE(room.is_waiting(job(2)));
  room.leave(job(2));
  EXPECT_EQ(begun, "3");
  EXPECT_FALSE(room.is_waiting(job(2)));
  EXPECT_FALSE(room.is_waiting(job(3))) << "it is in";
}

// Two gangs that are each in on one node and wait on the other would wait for ever.
TEST_F(RoomTest, WhoHasRanksElsewhereDoesNotWaitForEver) {
  EXPECT_TRUE(room.enter(job(1), 7));
  wait(2, 5);
  wait_in_part(3, 5);
  wait(4, 1);
  loop.run();
  EXPECT_EQ(given_up, "3");
  EXPECT_EQ(begun, "");
  EXPECT_FALSE(room.is_waiting(job(3)));
  EXPECT_TRUE(room.is_waiting(job(2))) << "it keeps nobody waiting elsewhere";
  room.leave(job(1));
  EXPECT_EQ(begun, "24");
}

TEST_F(RoomTest, WhoIsGivenUpHoldsUpNobody) {
  EXPECT_TRUE(room.enter(job(1), 7));
  wait_in_part(2, 5);
  wait(3, 1);
  loop.run();
  EXPECT_EQ(given_up, "2");
  EXPECT_EQ(begun, "3");
}

// With the line as long as it is, it would never get in.
TEST_F(RoomTest, WhoWasGivenUpIsTheFirstWhenItComesBack) {
  EXPECT_TRUE(room.enter(job(1), 7));
  wait(2, 5);
  wait_in_part(3, 5);
  loop.run();
  ASSERT_EQ(given_up, "3");
  wait(4, 5);
  room.wait({cluster::JobId(3), 1}, 5, [this] { begun += "3"; });
  room.leave(job(1));
  EXPECT_EQ(begun, "3");
  room.leave({cluster::JobId(3), 1});
  EXPECT_EQ(begun, "32");
  room.wait({cluster::JobId(3), 2}, 5, [this] { begun += "3"; });
  room.leave(job(2));
  EXPECT_EQ(begun, "324") << "it has been in since";
}

TEST_F(RoomTest, WhoIsInIsNotGivenUp) {
  wait_in_part(1, 8);
  EXPECT_EQ(begun, "1");
  wait_in_part(2, 8);
  loop.run();
  EXPECT_EQ(given_up, "2") << "and not the first, which had to wait before";
}

TEST_F(RoomTest, WhatIsStartedCountsInPlaceOfWhatWasEnteredFor) {
  EXPECT_TRUE(room.enter(job(1), 4));
  room.start(job(1), 6);
  EXPECT_EQ(room.files(), 7U) << "more of it came while it was prepared";
  room.start(job(2), 1);
  EXPECT_EQ(room.files(), 9U) << "one that an earlier agent has left enters nowhere";
}

}  // namespace
}  // namespace tutti::agent
