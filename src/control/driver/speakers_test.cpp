#include "control/driver/speakers.hpp"

#include <gtest/gtest.h>

namespace tutti::driver {
namespace {

TEST(Speakers, TheNewestConnectionSpeaksForTheNode) {
  Speakers speakers;
  EXPECT_FALSE(speakers.of("a").has_value());
  EXPECT_TRUE(speakers.greet("a", 1).accepted);
  EXPECT_TRUE(speakers.greet("b", 2).accepted);
  const auto greeting = speakers.greet("a", 3);
  EXPECT_TRUE(greeting.accepted);
  EXPECT_EQ(greeting.replaced, 1U);
  EXPECT_FALSE(speakers.speaks("a", 1));
  EXPECT_TRUE(speakers.speaks("a", 3));
  EXPECT_EQ(speakers.of("b"), 2U);
}

TEST(Speakers, ASecondHelloReplacesNothing) {
  Speakers speakers;
  speakers.greet("a", 1);
  const auto greeting = speakers.greet("a", 1);
  EXPECT_TRUE(greeting.accepted);
  EXPECT_EQ(greeting.replaced, 0U);
}

// What was sent before a network broke may arrive when the agent has long opened another connection.
TEST(Speakers, AnOlderConnectionDoesNotComeBack) {
  Speakers speakers;
  speakers.greet("a", 2);
  EXPECT_FALSE(speakers.greet("a", 1).accepted);
  EXPECT_TRUE(speakers.speaks("a", 2));
  speakers.drop("a", 2);
  EXPECT_FALSE(speakers.greet("a", 1).accepted) << "nor when nobody else speaks";
  EXPECT_TRUE(speakers.greet("a", 3).accepted);
}

TEST(Speakers, OnlyTheSpeakerIsMissed) {
  Speakers speakers;
  speakers.greet("a", 1);
  speakers.greet("a", 2);
  EXPECT_FALSE(speakers.drop("a", 1));
  EXPECT_TRUE(speakers.drop("a", 2));
  EXPECT_FALSE(speakers.drop("a", 2));
  EXPECT_TRUE(speakers.all().empty());
}

}  // namespace
}  // namespace tutti::driver
