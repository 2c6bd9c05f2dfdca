#include "gate/ask/ask.hpp"

#include <gtest/gtest.h>

#include "base/json/parse.hpp"

namespace tutti::gate {
namespace {

Ask read(std::string_view body) {
  auto ask = read_ask(body);
  EXPECT_TRUE(ask) << body << ": " << (ask ? "" : ask.error().text());
  return ask ? *ask : Ask{};
}

std::string problem(std::string_view body) {
  const auto ask = read_ask(body);
  EXPECT_FALSE(ask) << body;
  return ask ? "" : ask.error().text();
}

TEST(Ask, WhatAGatewayLooksAtIsFound) {
  const Ask ask = read(R"( {"messages":[{"role":"user","content":"model\":\"x\""}], "model" : "ll\u0061ma",
                            "stream":true,"max_tokens":7,"other":{"model":"y","stream":false}} )");
  EXPECT_EQ(ask.model, "llama");
  EXPECT_TRUE(ask.streams);
  EXPECT_TRUE(ask.may_go_on);
  EXPECT_EQ(ask.answer_tokens, 7);
  EXPECT_GT(ask.prompt_tokens, 5);
}

TEST(Ask, WhoNamesNoModelMeansNone) {
  EXPECT_EQ(read(R"({})").model, "");
  EXPECT_EQ(read(R"({"model":null})").model, "");
  EXPECT_EQ(read(R"({"prompt":"x"})").answer_tokens, answer_tokens_expected);
  EXPECT_EQ(read(R"({"input":["x","y"]})").answer_tokens, 0);
}

TEST(Ask, OnlyOneAnswerThatStreamsGoesOnElsewhere) {
  EXPECT_TRUE(read(R"({"prompt":"x","stream":true})").may_go_on);
  for (const char* const body :
       {R"({"prompt":"x"})", R"({"prompt":"x","stream":true,"n":2})", R"({"prompt":["x","y"],"stream":true})",
        R"({"prompt":[1,2],"stream":true})", R"({"prompt":"x","stream":true,"echo":true})",
        R"({"prompt":"x","stream":true,"best_of":3})",
        R"({"prompt":"x","stream":true,"tutti_resume":{"id":"a","created":1,"tokens":[]}})"})
    EXPECT_FALSE(read(body).may_go_on) << body;
}

TEST(Ask, WhatIsReadOtherwiseByWhoeverAnswersIsRefused) {
  EXPECT_EQ(problem(R"({"model":"a","prompt":"x","model":"b"})"), "model : is there twice");
  EXPECT_NE(problem(R"({"mo\u0064el":"a","prompt":"x"})").find("escape"), std::string::npos);
  EXPECT_NE(problem(R"({"model":["a"]})").find("model"), std::string::npos);
  EXPECT_NE(problem("{\"model\":\"" + std::string(2'000, 'a') + "\"}").find("model"), std::string::npos);
}

TEST(Ask, WhatIsNoObjectIsRefused) {
  for (const char* const body :
       {"", " ", "[]", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":[1}", "{\"a\":\"x", "{\"a\":\"\\",
        "{\"a\":1}x", "{a:1}", "{\"a\" 1}", "{\"a\":1,}", "{\"a\":}"})
    EXPECT_NE(problem(body), "") << body;
}

TEST(Ask, PromptsThatBeginAlikeHaveTheSameFirstMarks) {
  const std::string begin(3 * mark_bytes, 'a');
  const auto body = [](const std::string& prompt) { return "{\"prompt\":\"" + prompt + "\"}"; };
  const auto one = read(body(begin + std::string(mark_bytes, 'b'))).marks;
  const auto other = read(body(begin + std::string(mark_bytes, 'c'))).marks;
  ASSERT_EQ(one.size(), 4U);
  ASSERT_EQ(other.size(), 4U);
  for (std::size_t at = 0; at < 3; ++at) EXPECT_EQ(one[at], other[at]);
  EXPECT_NE(one[3], other[3]);
  EXPECT_EQ(read(body(std::string(10 << 20, 'x'))).marks.size(), marks_max);
}

TEST(Ask, WhatAnAnswerHasTakenIsFoundInIt) {
  EXPECT_EQ(told_tokens(R"({"usage":{"completion_tokens":3,"total_tokens":17}})"), 17);
  EXPECT_EQ(told_tokens(R"({"usage":{"total_tokens": 5},"choices":[{"text":"\"total_tokens\":99"}]})"), 5);
  EXPECT_EQ(told_tokens(R"({"choices":[]})"), 0);
  EXPECT_EQ(told_tokens(R"({"total_tokens":null,"x":1})"), 0);
  EXPECT_EQ(told_tokens(R"({"total_tokens":-5})"), 0);
}

TEST(Ask, AMemberMoreStandsBeforeTheOthers) {
  EXPECT_EQ(with_member(R"( {"a":1})", "b", "[2]"), R"({"b":[2],"a":1})");
  EXPECT_EQ(with_member("{ }", "b", "2"), "{\"b\":2 }");
  EXPECT_TRUE(json::parse(with_member(R"({"prompt":"}"})", "b", "2")));
}

}  // namespace
}  // namespace tutti::gate
