#include "net/http/pattern.hpp"

#include <gtest/gtest.h>

namespace tutti::net {
namespace {

using Parts = std::vector<std::string>;

// The arguments as "name=value …", behind the number of literal parts; "-" if it does not fit.
std::string matched(std::string_view pattern, const Parts& parts) {
  const auto match = match_path(pattern, parts);
  if (!match) return "-";
  std::string text = std::to_string(match->literals);
  for (const auto& [name, value] : match->arguments) text.append(" ").append(name).append("=").append(value);
  return text;
}

TEST(Pattern, PartsAreTheSameOrArguments) {
  EXPECT_EQ(matched("/jobs", {"jobs"}), "1");
  EXPECT_EQ(matched("/jobs/{id}/cancel", {"jobs", "7", "cancel"}), "2 id=7");
  EXPECT_EQ(matched("/queues/{name}", {"queues", "research/vision"}), "1 name=research/vision");
  for (const Parts& other : {Parts{}, Parts{""}, Parts{"jobs"}, Parts{"jobs", ""}, Parts{"jobs", "7", "more"},
                             Parts{"Jobs", "7"}, Parts{"jobs/7"}})
    EXPECT_EQ(matched("/jobs/{id}", other), "-") << testing::PrintToString(other);
}

TEST(Pattern, WhatStandsInBracketsMayBeMissing) {
  const std::string_view pattern = "[/openai]/v2/models/{name}[/versions/{version}]/ready";
  EXPECT_EQ(matched(pattern, {"v2", "models", "toy", "ready"}), "3 name=toy");
  EXPECT_EQ(matched(pattern, {"v2", "models", "toy", "versions", "1", "ready"}), "4 name=toy version=1");
  EXPECT_EQ(matched(pattern, {"openai", "v2", "models", "toy", "ready"}), "4 name=toy");
  EXPECT_EQ(matched(pattern, {"openai", "v2", "models", "a", "versions", "b", "ready"}),
            "5 name=a version=b");
  EXPECT_EQ(matched(pattern, {"v2", "models", "toy", "versions", "ready"}), "-");
  EXPECT_EQ(matched(pattern, {"openai", "openai", "v2", "models", "toy", "ready"}), "-");
}

TEST(Pattern, AnArgumentCanTakeTheRest) {
  EXPECT_EQ(matched("/models/{name...}", {"models", "a"}), "1 name=a");
  EXPECT_EQ(matched("/models/{name...}", {"models", "a", "b", "c"}), "1 name=a/b/c");
  EXPECT_EQ(matched("/models/{name...}", {"models"}), "-");
  EXPECT_EQ(matched("/models/{name...}", {"models", ""}), "-");
}

TEST(Pattern, NamesItsArguments) {
  EXPECT_EQ(argument_names("/a/{b}/c/{d}"), (std::vector<std::string_view>{"b", "d"}));
  EXPECT_EQ(argument_names("/a[/{b}]/{rest...}"), (std::vector<std::string_view>{"b", "rest"}));
  EXPECT_TRUE(argument_names("/a").empty());
}

}  // namespace
}  // namespace tutti::net
