#include "node/agent/room.hpp"

#include <string>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

struct RoomTest : testing::Test {
  static Room::Attempt job(std::uint64_t number) { return {cluster::JobId(number), 0}; }
  void wait(std::uint64_t number, std::size_t ranks) { wait(job(number), ranks); }
  void wait(Room::Attempt attempt, std::size_t ranks) {
    const std::string name = attempt.first.text();
    room.wait(
        attempt, ranks, [this, name] { begun += name; },
        [this, name] {
          given_up += name;
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

// It would wait until all others have ended, and hold up everybody behind it.
TEST_F(RoomTest, OneThatWouldNotFitIntoAllOfItDoesNotGetIn) {
  EXPECT_TRUE(room.can_hold(job(1), 9));
  EXPECT_FALSE(room.can_hold(job(1), 10)) << "a file for each rank, and one for the port";
  EXPECT_FALSE(room.enter(job(1), 10));
  room.start(job(2), 12);
  EXPECT_TRUE(room.can_hold(job(2), 1)) << "it is in already";
  EXPECT_TRUE(room.can_hold(job(1), 9)) << "there may be room one day";
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

// Two gangs that are each in on one node and wait on the other would wait for ever, and so would whoever is
// behind one that waits for another without end.
TEST_F(RoomTest, NobodyWaitsForEver) {
  EXPECT_TRUE(room.enter(job(1), 7));
  wait(2, 5);
  wait(3, 1);
  EXPECT_EQ(begun, "");
  loop.run();
  EXPECT_EQ(given_up, "2");
  EXPECT_FALSE(room.is_waiting(job(2)));
  EXPECT_EQ(begun, "3") << "who is given up holds up nobody";
}

// With the line as long as it is, it would never get in.
TEST_F(RoomTest, WhoWasGivenUpIsTheFirstWhenItComesBack) {
  EXPECT_TRUE(room.enter(job(1), 7));
  wait(2, 5);
  loop.run();
  ASSERT_EQ(given_up, "2");
  wait(3, 5);
  wait({cluster::JobId(2), 1}, 5);
  wait(4, 5);
  room.leave(job(1));
  EXPECT_EQ(begun, "2");
  room.leave({cluster::JobId(2), 1});
  EXPECT_EQ(begun, "23");
  wait({cluster::JobId(2), 2}, 5);
  room.leave(job(3));
  EXPECT_EQ(begun, "234") << "it has been in since";
}

TEST_F(RoomTest, WhoIsInIsNotGivenUp) {
  wait(1, 8);
  EXPECT_EQ(begun, "1");
  wait(2, 8);
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
