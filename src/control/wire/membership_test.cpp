#include "control/wire/membership.hpp"

#include <gtest/gtest.h>

#include "control/wire/objects.hpp"

namespace tutti::wire {
namespace {

TEST(WireMembership, TokensAndMembersAreReadAsTheyWereStored) {
  const cluster::JoinToken token{"4f1c", "hash", "gpu-*", 3, Instant(5s), Instant(9s)};
  const cluster::Member member{"n1",   "key",       "folder",    "0a", "sha256:1",
                               "4f1c", Instant(1s), Instant(2s), true, true};
  cluster::State state;
  ASSERT_TRUE(decode_into(state, join_token_key("4f1c"), encode(token)).ok());
  ASSERT_TRUE(decode_into(state, member_key("n1"), encode(member)).ok());
  EXPECT_EQ(state.join_tokens.at("4f1c"), token);
  EXPECT_EQ(state.members.at("n1"), member);
}

TEST(WireMembership, WhatIsStoredUnderAnotherKeyIsDamaged) {
  cluster::State state;
  cluster::Member member;
  member.name = "n1";
  EXPECT_FALSE(decode_into(state, member_key("n2"), encode(member)).ok());
  EXPECT_FALSE(decode_into(state, member_key("n1"), "\xff\xff").ok());
  EXPECT_FALSE(decode_into(state, join_token_key("1"), encode(cluster::JoinToken{.id = "2"})).ok());
}

TEST(WireMembership, AWishForATokenHasItsBounds) {
  const auto usual = decode_join_token_wish("");
  ASSERT_TRUE(usual.ok());
  EXPECT_EQ(usual->uses, 1);
  EXPECT_EQ(usual->life, Duration(1h));
  const auto wish = decode_join_token_wish(encode(JoinTokenWish{4, 10min, "gpu-*"}));
  ASSERT_TRUE(wish.ok());
  EXPECT_EQ(wish->uses, 4);
  EXPECT_EQ(wish->life, Duration(10min));
  EXPECT_EQ(wish->name_pattern, "gpu-*");
  for (const char* bad :
       {R"({"uses":0})", R"({"uses":1000000})", R"({"life_s":0})", R"({"life_s":99999999999})",
        R"({"name_pattern":"a/b"})", R"({"name_pattern":7})", "[]"})
    EXPECT_FALSE(decode_join_token_wish(bad).ok()) << bad;
}

TEST(WireMembership, ARequestToJoinIsChecked) {
  const JoinRequest asked{"tutti_join_1", "n1", "ab12", "PEM", Instant(1'800'000'000s)};
  const auto read = decode_join(encode(asked));
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->token, asked.token);
  EXPECT_EQ(read->name, asked.name);
  EXPECT_EQ(read->identity, asked.identity);
  EXPECT_EQ(read->request, asked.request);
  EXPECT_EQ(read->date, asked.date);
  for (const JoinRequest& bad :
       {JoinRequest{"", "n1", "ab"}, JoinRequest{"a b", "n1", "ab"}, JoinRequest{"t", "../n1", "ab"},
        JoinRequest{"t", "n1", "a/b"}, JoinRequest{"t", "n1", "ab", std::string(20'000, 'x')},
        JoinRequest{std::string(300, 't'), "n1", "ab"}})
    EXPECT_FALSE(decode_join(encode(bad)).ok());
  EXPECT_TRUE(decode_join(R"({"token":"t","name":"n1","date_s":"9223372036854775807"})").ok())
      << "no overflow";
}

TEST(WireMembership, ARenewalTellsWhatIsTrustedAndItsAnswerWhetherItIsToBeShown) {
  JoinRequest asked{.request = "PEM", .date = Instant(1'800'000'000s), .trusted = {"sha256:1", "sha256:2"}};
  const auto read = decode_renewal(encode_renewal(asked));
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->trusted, asked.trusted);
  asked.trusted.resize(100);
  EXPECT_FALSE(decode_renewal(encode_renewal(asked)).ok());
  const auto reply = decode_join_reply(encode(JoinReply{"n1", "PEM", "PEM", true}));
  ASSERT_TRUE(reply.ok()) << reply.error().text();
  EXPECT_TRUE(reply->again);
}

TEST(WireMembership, TheListOfTokensDoesNotTellWhatOpens) {
  cluster::State state;
  state.join_tokens["4f1c"] = {"4f1c", "hash", "", 0, Instant(), Instant(9s)};
  const std::string json = join_tokens_json(state, Instant(1s));
  EXPECT_NE(json.find("used up"), std::string::npos);
  EXPECT_EQ(json.find("hash"), std::string::npos);
  EXPECT_NE(join_tokens_json(state, Instant(9s)).find("expired"), std::string::npos);
}

}  // namespace
}  // namespace tutti::wire
