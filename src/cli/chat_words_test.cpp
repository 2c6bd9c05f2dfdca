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
    for (const std::string& data : {each, "{\"choices\":" + each + "}", "{\"choices\":[" + each + "]}",
                                    "{\"choices\":[{\"delta\":" + each + "}]}",
                                    "{\"choices\":[{\"delta\":{\"content\":[" + each + "]}}]}"}) {
      EXPECT_EQ(heard_in(data).piece, "") << data;
      EXPECT_EQ(heard_in(data).problem, "") << data;
    }
  }
  EXPECT_EQ(heard_in(R"({"error":{"message":5}})").problem, R"({"error":{"message":5}})");
  EXPECT_EQ(heard_in(R"({"error":{"message":{"a":1}}})").problem, R"({"error":{"message":{"a":1}}})");
  EXPECT_EQ(problem_in(std::string(100'000, 'x')).size(), 1000U);
  EXPECT_EQ(problem_in(R"({"error":{"message":")" + std::string(100'000, 'x') + "\"}}").size(), 1000U);
}

}  // namespace
}  // namespace tutti::cli
