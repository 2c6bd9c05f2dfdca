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

// Whoever may join can say any name.
TEST(Speakers, OfNodesThatAreGoneOnlySoManyAreKnown) {
  Speakers speakers;
  const Who who{"folder", "host"};
  EXPECT_TRUE(speakers.greet("stays", 1, who, Instant(100s)).accepted);
  Connection connection = 1;
  Instant now(100s);
  for (std::size_t node = 0; node < 3 * speakers_kept; ++node) {
    now += 100ms;
    const std::string name = "node-" + std::to_string(node);
    EXPECT_TRUE(speakers.greet(name, ++connection, who, now).accepted);
    EXPECT_TRUE(speakers.drop(name, connection));
    EXPECT_LE(speakers.known(), speakers_kept + 1);
  }
  EXPECT_EQ(speakers.of("stays"), 1U);
  const std::string last = "node-" + std::to_string(3 * speakers_kept - 1);
  EXPECT_FALSE(speakers.refusal(last, {"other", "host"}, now).empty()) << "it may come back";
  EXPECT_FALSE(speakers.greet("node-0", 2, who, now).accepted) << "an older connection does not come back";
  EXPECT_TRUE(speakers.greet("node-0", ++connection, who, now).accepted);
}

// ---- two agents with one name

const Who first{"aaaa", "host1 boot1"};
const Who second{"bbbb", "host2 boot2"};

TEST(Speakers, ASecondAgentWithTheNameIsRefusedWhileTheFirstLives) {
  Speakers speakers;
  Instant now{100s};
  ASSERT_TRUE(speakers.greet("a", 1, first, now).accepted);
  now += 5s;
  speakers.hear("a", 1, now);
  now += 6s;
  EXPECT_FALSE(speakers.greet("a", 2, second, now).accepted);
  EXPECT_NE(speakers.refusal("a", second, now).find("host1"), std::string::npos);
  EXPECT_TRUE(speakers.speaks("a", 1)) << "it goes on undisturbed";
  EXPECT_TRUE(speakers.greet("a", 3, first, now).accepted) << "and may connect again";
  speakers.drop("a", 3);
  EXPECT_FALSE(speakers.greet("a", 4, second, now + 1s).accepted) << "it may come back";
  EXPECT_TRUE(speakers.greet("a", 5, second, now + return_time_max + 1s).accepted);
  EXPECT_FALSE(speakers.greet("a", 6, first, now + return_time_max + 2s).accepted);
}

TEST(Speakers, AnAgentWhoseHostIsGoneKeepsNobodyOutForLong) {
  Speakers speakers;
  ASSERT_TRUE(speakers.greet("a", 1, first, Instant(100s)).accepted);
  EXPECT_FALSE(speakers.greet("a", 2, second, Instant(109s)).accepted);
  const auto greeting = speakers.greet("a", 3, second, Instant(111s));
  EXPECT_TRUE(greeting.accepted);
  EXPECT_EQ(greeting.replaced, 1U);
}

TEST(Speakers, ACopyOfAFolderIsRefusedAndARebootIsNot) {
  Speakers speakers;
  const Who copy{first.identity, "host2 boot2"};
  const Who rebooted{first.identity, "host1 boot2"};
  ASSERT_TRUE(speakers.greet("a", 1, first, Instant(100s)).accepted);
  EXPECT_NE(speakers.refusal("a", copy, Instant(101s)).find("copy"), std::string::npos);
  EXPECT_FALSE(speakers.greet("a", 2, copy, Instant(101s)).accepted);
  speakers.drop("a", 1);
  EXPECT_TRUE(speakers.greet("a", 3, rebooted, Instant(102s)).accepted);
}

TEST(Speakers, AfterARestartOfTheControllerTheAgentOfBeforeComesFirst) {
  Speakers speakers;
  speakers.expect("a", {first.identity, ""}, Instant(100s));
  EXPECT_FALSE(speakers.of("a").has_value());
  EXPECT_FALSE(speakers.greet("a", 1, second, Instant(101s)).accepted);
  EXPECT_TRUE(speakers.greet("a", 2, first, Instant(102s)).accepted);
}

}  // namespace
}  // namespace tutti::driver
