#include "gate/story/story.hpp"

#include <gtest/gtest.h>

#include "base/json/parse.hpp"

namespace tutti::gate {
namespace {

std::string event(const std::string& data, const std::string& tokens) {
  return ": tutti" + tokens + "\ndata: " + data + "\n\n";
}
std::string plain(const std::string& data) { return "data: " + data + "\n\n"; }
std::string chunk(const std::string& text) {
  return R"({"id":"cmpl-1","created":5,"choices":[{"text":")" + text + R"(","finish_reason":null}]})";
}
const std::string finish = R"({"id":"cmpl-1","created":5,"choices":[{"text":"","finish_reason":"stop"}]})";

std::string taken(Story& story, const std::string& bytes) {
  auto out = story.take(bytes);
  EXPECT_TRUE(out) << (out ? "" : out.error().text());
  return out ? *out : "";
}

TEST(Story, ClientsReadEventsWithoutWhatIsForUs) {
  Story story(true, false);
  const std::string all =
      event(chunk("a"), " 1 2") + event(chunk("b"), " 3") + event(finish, "") + plain("[DONE]");
  std::string out;
  for (const char byte : all) out += taken(story, std::string(1, byte));
  EXPECT_EQ(out, plain(chunk("a")) + plain(chunk("b")) + plain(finish) + plain("[DONE]"));
  EXPECT_TRUE(story.is_whole());
  EXPECT_EQ(story.tokens(), 3U);
}

TEST(Story, WhoAsksForTheTokensGetsThem) {
  Story story(true, true);
  const std::string all = event(chunk("a"), " 1 2") + plain("[DONE]");
  EXPECT_EQ(taken(story, all), all);
}

TEST(Story, AnotherOneGoesOnBehindTheTokensOfWholeEvents) {
  Story story(true, false);
  taken(story, event(chunk("a"), " 1 2") + event(chunk("b"), " 3 4").substr(0, 30));
  ASSERT_TRUE(story.can_go_on());
  EXPECT_EQ(story.rest(), R"({"created":5,"id":"cmpl-1","tokens":[1,2]})");
  story.begin_again();
  EXPECT_EQ(taken(story, event(chunk("b"), " 3 4") + plain("[DONE]")), plain(chunk("b")) + plain("[DONE]"));
  EXPECT_EQ(story.tokens(), 4U);
  EXPECT_TRUE(story.is_whole());
}

TEST(Story, BeforeAnythingWasSaidItIsToldFromTheBeginning) {
  Story story(true, false);
  taken(story, event(chunk("a"), " 1").substr(0, 12));
  EXPECT_TRUE(story.can_go_on());
  EXPECT_EQ(story.rest(), "");
  EXPECT_FALSE(story.has_begun());
}

const std::string role =
    R"({"id":"cmpl-1","created":5,"choices":[{"delta":{"role":"assistant"},"finish_reason":null}]})";

TEST(Story, WhoSpeaksIsSaidWithTheFirstToken) {
  Story story(true, false);
  EXPECT_EQ(taken(story, plain(role)), "");
  ASSERT_TRUE(story.can_go_on());
  EXPECT_EQ(story.rest(), "");
  story.begin_again();
  EXPECT_EQ(taken(story, plain(role)), "");
  EXPECT_EQ(taken(story, event(chunk("a"), " 1")), plain(role) + plain(chunk("a")));
  // What is used up is told behind why it ends, and tells no tokens.
  const std::string usage = R"({"id":"cmpl-1","created":5,"choices":[],"usage":{}})";
  EXPECT_EQ(taken(story, event(finish, "") + plain(usage)), plain(finish) + plain(usage));
  EXPECT_TRUE(story.can_go_on());
}

TEST(Story, ToldFromTheBeginningItHasTheNameOfWhoeverTellsIt) {
  Story story(true, false);
  taken(story, plain(role));
  story.begin_again();
  const auto named = [](std::string text) { return text.replace(text.find("cmpl-1"), 6, "cmpl-2"); };
  taken(story, plain(named(role)) + event(named(chunk("a")), " 1"));
  EXPECT_EQ(story.rest(), R"({"created":5,"id":"cmpl-2","tokens":[1]})");
}

TEST(Story, WhoTellsNoTokensIsNotFollowedByAnother) {
  Story other(true, false);
  EXPECT_EQ(taken(other, plain(role) + plain(chunk("a"))), plain(role) + plain(chunk("a")));
  EXPECT_FALSE(other.can_go_on());
  Story story(true, false);
  taken(story, plain(chunk("a")));
  EXPECT_FALSE(story.can_go_on());
  Story alone(false, false);
  taken(alone, event(chunk("a"), " 1"));
  EXPECT_FALSE(alone.can_go_on());
}

TEST(Story, WhyItEndsIsSaidOnce) {
  Story story(true, false);
  taken(story, event(chunk("a"), " 1") + event(finish, " 2"));
  ASSERT_TRUE(story.can_go_on());
  story.begin_again();
  EXPECT_EQ(taken(story, event(finish, "") + plain("[DONE]")), plain("[DONE]"));
  // A text that looks like it is a text.
  Story other(true, false);
  const std::string quoted = R"({"id":"c","created":5,"choices":[{"text":"\"finish_reason\":\"x"}]})";
  EXPECT_EQ(taken(other, event(quoted, " 1") + event(quoted, " 2")), plain(quoted) + plain(quoted));
}

TEST(Story, OfSeveralAnswersEachSaysWhyItEnds) {
  Story story(false, false);
  const std::string all =
      plain(chunk("a")) + plain(finish) + plain(chunk("b")) + plain(finish) + plain(finish) + plain("[DONE]");
  EXPECT_EQ(taken(story, all), all);
}

TEST(Story, BehindTheLastEventNothingIsHeard) {
  Story story(true, false);
  const std::string rest(event_bytes_max, 'x');
  EXPECT_EQ(taken(story, event(chunk("a"), " 1") + plain("[DONE]") + rest),
            plain(chunk("a")) + plain("[DONE]"));
  EXPECT_EQ(taken(story, rest + plain(chunk("b"))), "");
  EXPECT_TRUE(story.is_whole());
}

TEST(Story, AnEngineThatIsAboutToStopIsFollowedByAnotherWithoutAWord) {
  const std::string stops = plain(R"({"error":{"message":"x","type":"overloaded_error"}})");
  Story story(true, false);
  EXPECT_EQ(taken(story, event(chunk("a"), " 1") + stops + plain("[DONE]")), plain(chunk("a")));
  EXPECT_TRUE(story.is_given_up());
  EXPECT_EQ(story.reason(), stops);
  EXPECT_FALSE(story.is_whole());
  story.begin_again();
  EXPECT_FALSE(story.is_given_up());
  // What is the request's own fault would be so elsewhere.
  const std::string wrong = plain(R"({"error":{"message":"x","type":"server_error"}})");
  Story broken(true, false);
  EXPECT_EQ(taken(broken, event(chunk("a"), " 1") + wrong), plain(chunk("a")) + wrong);
  EXPECT_FALSE(broken.is_given_up());
  // Where nobody can go on, the client hears it.
  Story last(false, false);
  EXPECT_EQ(taken(last, stops), stops);
}

TEST(Story, LinesMayEndInBothWays) {
  Story story(true, false);
  EXPECT_EQ(taken(story, ": tutti 1\r\ndata: " + chunk("a") + "\r\n\r\ndata: [DONE]\r\n\r\n"),
            "data: " + chunk("a") + "\r\n\r\ndata: [DONE]\r\n\r\n");
  EXPECT_TRUE(story.is_whole());
}

TEST(Story, WhatIsNoStreamIsRefused) {
  Story endless(true, false);
  EXPECT_FALSE(endless.take(std::string(event_bytes_max + 1, 'x')));
  for (const char* const numbers : {" -1", " x", " 1,2", " 99999999999", "1"}) {
    Story story(true, false);
    EXPECT_FALSE(story.take(event(chunk("a"), numbers))) << numbers;
  }
}

TEST(Story, AnIdThatCannotBeNamedIsNotGoneOnWith) {
  Story story(true, false);
  taken(story, event(R"({"id":"a\"b","created":5,"choices":[]})", " 1"));
  EXPECT_FALSE(story.can_go_on());
}

}  // namespace
}  // namespace tutti::gate
