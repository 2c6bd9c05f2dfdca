#include "gate/quota/quota.hpp"

#include <gtest/gtest.h>

namespace tutti::gate {
namespace {

const std::string hash_a(64, 'a');
const std::string hash_b(64, 'b');

std::string line(const std::string& name, const std::string& hash, const std::string& more = "") {
  return "{\"name\":\"" + name + "\",\"sha256\":\"" + hash + "\"" + more + "}\n";
}
std::string problem(const std::string& text) {
  const auto keys = read_keys(text);
  EXPECT_FALSE(keys) << text;
  return keys ? "" : keys.error().text();
}

TEST(Keys, AreReadLineByLine) {
  const auto keys =
      read_keys("# who may ask\n\n" + line("ada", hash_a) +
                line("bob@lab", hash_b,
                     R"(,"models":["chat","small"],"requests_per_minute":60,"tokens_per_day":1000,)"
                     R"("priority":5)"));
  ASSERT_TRUE(keys) << keys.error().text();
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ(keys->at(hash_a), KeyRules{.name = "ada"});
  EXPECT_TRUE(keys->at(hash_a).may_ask("anything"));
  const KeyRules& bob = keys->at(hash_b);
  EXPECT_EQ(bob.requests_per_minute, 60);
  EXPECT_EQ(bob.tokens_per_day, 1'000);
  EXPECT_EQ(bob.priority, 5);
  EXPECT_TRUE(bob.may_ask("chat"));
  EXPECT_FALSE(bob.may_ask("other"));
}

TEST(Keys, WhatIsNotUnderstoodIsRefusedWithItsLineAndWithoutWhatIsInIt) {
  EXPECT_NE(problem("\n" + line("ada", hash_a, ",\"token_per_day\":5")).find("line 2"), std::string::npos);
  EXPECT_NE(problem(line("ada", hash_a) + line("ada", hash_b)).find("twice"), std::string::npos);
  EXPECT_NE(problem(line("ada", hash_a) + line("bob", hash_a)).find("twice"), std::string::npos);
  for (const char* const more :
       {",\"models\":[]", ",\"models\":\"chat\"", ",\"models\":[5]", ",\"priority\":-1",
        ",\"requests_per_minute\":1.5", ",\"tokens_per_day\":\"many\""})
    EXPECT_FALSE(read_keys(line("ada", hash_a, more))) << more;
  const std::string secret = "sk-very-secret";
  for (const std::string& text :
       {secret, line("ada", secret), line("a b", hash_a), line("", hash_a), "{\"" + secret + "\":1}\n",
        line("ada", std::string(64, 'A')), "[\"" + secret + "\"]\n"})
    EXPECT_EQ(problem(text).find(secret), std::string::npos) << text;
}

const Instant noon = Instant() + 20'000 * 24h + 12h;

TEST(Quota, SoManyRequestsAMinute) {
  const KeyRules key{.name = "ada", .requests_per_minute = 60};
  Quota quota;
  for (int request = 0; request < 60; ++request) ASSERT_FALSE(quota.begin(key, noon)) << request;
  const auto refusal = quota.begin(key, noon);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->limit, Quota::Limit::requests);
  EXPECT_GT(refusal->retry_after, 0ms);
  EXPECT_LT(refusal->retry_after, 1s + 1ms);
  EXPECT_FALSE(quota.begin(key, noon + refusal->retry_after)) << "it was told when to come again";
  EXPECT_TRUE(quota.begin(key, noon + refusal->retry_after));
  EXPECT_EQ(quota.usage().at("ada").requests, 61U);
  EXPECT_EQ(quota.usage().at("ada").refused, 2U);
  // Another one is not held up by that, and another limit begins anew.
  EXPECT_FALSE(quota.begin({.name = "bob", .requests_per_minute = 1}, noon));
  EXPECT_FALSE(quota.begin({.name = "ada", .requests_per_minute = 61}, noon));
}

TEST(Quota, SoManyTokensADay) {
  const KeyRules key{.name = "ada", .tokens_per_day = 100};
  Quota quota;
  EXPECT_FALSE(quota.begin(key, noon));
  EXPECT_FALSE(quota.begin(key, noon));
  quota.end("ada", 99, noon);
  EXPECT_FALSE(quota.begin(key, noon)) << "one is left";
  quota.end("ada", 50, noon + 1h);
  const auto refusal = quota.begin(key, noon + 2h);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->limit, Quota::Limit::tokens);
  EXPECT_EQ(refusal->retry_after, 10h);
  EXPECT_TRUE(quota.begin(key, noon + 12h - 1ns));
  EXPECT_FALSE(quota.begin(key, noon + 12h)) << "the next day";
  EXPECT_EQ(quota.usage().at("ada").tokens, 149);
  EXPECT_EQ(quota.usage().at("ada").tokens_today, 0);
  // What was begun yesterday and ends today is today's.
  quota.end("ada", 100, noon + 13h);
  EXPECT_TRUE(quota.begin(key, noon + 13h));
}

TEST(Quota, AClockThatGoesBackGivesNothing) {
  const KeyRules key{.name = "ada", .requests_per_minute = 1, .tokens_per_day = 10};
  Quota quota;
  EXPECT_FALSE(quota.begin(key, noon));
  quota.end("ada", 10, noon);
  EXPECT_TRUE(quota.begin(key, noon - 48h));
  EXPECT_TRUE(quota.begin(key, noon + 1min));
}

TEST(Quota, KeysThatAreNoMoreAreForgottenWhenTheirRequestsAreOver) {
  Quota quota;
  EXPECT_FALSE(quota.begin({.name = "ada"}, noon));
  EXPECT_FALSE(quota.begin({.name = "bob"}, noon));
  quota.end("bob", 5, noon);
  const Keys keys{{hash_a, {.name = "eve"}}};
  quota.keep_only(keys);
  EXPECT_TRUE(quota.usage().contains("ada"));
  EXPECT_FALSE(quota.usage().contains("bob"));
  quota.end("ada", 5, noon);
  quota.keep_only(keys);
  EXPECT_TRUE(quota.usage().empty());
}

}  // namespace
}  // namespace tutti::gate
