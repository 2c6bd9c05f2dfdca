#include "cli/chat_words.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::cli {
namespace {

TEST(ChatWords, AreFoundWhereTheyAre) {
  EXPECT_EQ(model_in(R"({"data":[{"id":"m"},{"id":"n"}]})"), "m");
  EXPECT_EQ(problem_in(R"({"error":{"message":"too many"}})"), "too many");
  EXPECT_EQ(problem_in(R"({"error":"no such model"})"), "no such model");
  EXPECT_EQ(heard_in(R"({"choices":[{"delta":{"content":"a"}}],"error":null})").piece, "a");
  EXPECT_EQ(heard_in(R"({"choices":[{"delta":{"content":"a"}}],"error":null})").problem, "");
  EXPECT_EQ(heard_in(R"({"error":{"message":"cut off"}})").problem, "cut off");
  EXPECT_FALSE(heard_in(R"({"choices":[{"delta":{"content":"a"},"finish_reason":null}]})").is_last);
  EXPECT_TRUE(heard_in(R"({"choices":[{"delta":{},"finish_reason":"length"}]})").is_last);
}

TEST(Answer, IsWholeWhenTheServerSaysSo) {
  const std::string piece = R"({"choices":[{"delta":{"content":"a"}}]})";
  const auto heard = [](const std::vector<std::string>& events) {
    Answer answer;
    for (const std::string& event : events) answer.hear(event);
    return answer;
  };
  EXPECT_EQ(heard({piece, "[DONE]"}).lack(""), "");
  EXPECT_TRUE(heard({piece, "[DONE]"}).is_over());
  const Answer said_why = heard({piece, R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"});
  EXPECT_EQ(said_why.lack("it closed the connection"), "") << "what is missing are numbers";
  EXPECT_FALSE(said_why.is_over()) << "somebody may want them";
  const Answer begun = heard({piece, piece});
  EXPECT_EQ(begun.text(), "aa");
  EXPECT_EQ(begun.lack(""), "the answer was cut off");
  EXPECT_EQ(begun.lack("it closed the connection"), "the answer was cut off: it closed the connection");
  EXPECT_EQ(heard({}).lack(""), "there was no answer: it ended before its first word");
  EXPECT_EQ(heard({}).lack("no answer"), "no answer");
  const Answer failed = heard({piece, R"({"error":{"message":"no memory"}})"});
  EXPECT_EQ(failed.lack(""), "the answer was cut off: no memory");
  EXPECT_EQ(failed.text(), "a") << "what came is kept";
  EXPECT_TRUE(failed.is_over());
  EXPECT_EQ(heard({R"({"error":{"message":"no memory"}})"}).lack(""), "no memory");
  EXPECT_EQ(heard({piece, "<html>"}).lack(""),
            "the answer was cut off: it sent what is no part of an answer: <html>");
  EXPECT_EQ(heard({piece, "", "[DONE]"}).lack(""), "") << "an event that is its name alone";
}

// Whatever stands at any place of what a server says.
TEST(ChatWords, OfOddServersHarmNobody) {
  const std::vector<std::string> odd{"5",   "-0.5", "\"x\"",      "true",          "null",   "[]", "{}",
                                     "[5]", "[[]]", R"({"0":1})", R"([{"id":5}])", "[null]", "{",  ""};
  for (const std::string& each : odd) {
    for (const std::string& body : {each, "{\"data\":" + each + "}", "{\"data\":[" + each + "]}",
                                    "{\"data\":[{\"id\":[" + each + "]}]}"})
      EXPECT_FALSE(model_in(body)) << body;
    for (const std::string& body :
         {each, "{\"error\":" + each + "}", "{\"error\":{\"message\":" + each + "}}"})
      EXPECT_FALSE(problem_in(body).empty()) << body;
    for (const std::string& data :
         {each, "{\"choices\":" + each + "}", "{\"choices\":[" + each + "]}",
          "{\"choices\":[{\"delta\":" + each + "}]}", "{\"choices\":[{\"finish_reason\":[" + each + "]}]}",
          "{\"choices\":[{\"delta\":{\"content\":[" + each + "]}}]}"}) {
      EXPECT_EQ(heard_in(data).piece, "") << data;
      EXPECT_FALSE(heard_in(data).is_last) << data;
    }
  }
  for (const std::string event : {"", "{}", R"({"0":1})", R"({"choices":5})", R"({"choices":[null]})"})
    EXPECT_EQ(heard_in(event).problem, "") << event;
  for (const std::string foreign : {"5", "null", "[]", R"(["a"])", "{", R"({"choices":[)", "<html>"})
    EXPECT_EQ(heard_in(foreign).problem, "it sent what is no part of an answer: " + foreign);
  EXPECT_EQ(heard_in(R"({"error":{"message":5}})").problem, R"({"error":{"message":5}})");
  EXPECT_EQ(heard_in(R"({"error":{"message":{"a":1}}})").problem, R"({"error":{"message":{"a":1}}})");
  EXPECT_EQ(problem_in(std::string(100'000, 'x')).size(), 1000U);
  EXPECT_EQ(problem_in(R"({"error":{"message":")" + std::string(100'000, 'x') + "\"}}").size(), 1000U);
}

}  // namespace
}  // namespace tutti::cli
