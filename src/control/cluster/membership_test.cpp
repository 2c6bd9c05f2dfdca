// Tokens for new nodes, and the nodes that have a certificate.
#include "control/cluster/membership.hpp"

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct MembershipTest : ClusterTest {
  void make_token(const std::string& id, std::int32_t uses = 1, Duration life = 1h,
                  const std::string& pattern = "") {
    JoinToken token;
    token.id = id;
    token.hash = "hash of " + id;
    token.uses_left = uses;
    token.name_pattern = pattern;
    EXPECT_TRUE(happen(MakeJoinToken{token, life}).reply.ok());
  }
  Member member(const NodeName& name, const std::string& key = "key") const {
    Member asks;
    asks.name = name;
    asks.key = key;
    asks.identity = "folder of " + key;
    asks.signed_at = now;
    asks.until = now + 24h;
    return asks;
  }
  // Why it is refused, "" if it is not.
  std::string ask(const std::string& token, const Member& asks) {
    const auto effects = happen(Join{"hash of " + token, asks});
    return effects.reply ? "" : effects.reply.error().text();
  }
  void hello(const NodeName& name, const std::string& key) {
    Hello says{name, "", "10.0.0.1", 1, {}, {}};
    says.identity = "folder of " + key;
    happen(says);
  }
};

TEST_F(MembershipTest, ATokenIsUsedUp) {
  make_token("t", 2);
  EXPECT_EQ(ask("t", member("a", "1")), "");
  EXPECT_EQ(ask("t", member("b", "2")), "");
  EXPECT_EQ(ask("t", member("c", "3")), "the token is used up");
  EXPECT_EQ(state.members.size(), 2u);
}

TEST_F(MembershipTest, WhoHasNotHeardTheAnswerAsksAgainWithoutASecondUse) {
  make_token("t");
  EXPECT_EQ(ask("t", member("a")), "");
  EXPECT_EQ(ask("t", member("a")), "");
  EXPECT_EQ(state.join_tokens.at("t").uses_left, 0);
  EXPECT_EQ(ask("t", member("b")), "the token is used up") << "the same key as another node";
}

TEST_F(MembershipTest, ATokenExpiresAndIsForgotten) {
  make_token("t", 1, 1min);
  now += 1min;
  EXPECT_TRUE(ask("t", member("a")).starts_with("the token has expired"));
  happen(Expire{});
  EXPECT_TRUE(state.join_tokens.contains("t")) << "so that it can be said";
  now += join_tokens_kept + 1s;
  const auto effects = happen(Expire{});
  EXPECT_TRUE(effects.join_tokens.contains("t"));
  EXPECT_TRUE(ask("t", member("a")).starts_with("the token is none of this cluster"));
}

TEST_F(MembershipTest, ARevokedTokenIsNone) {
  make_token("t", 5);
  EXPECT_EQ(ask("t", member("a", "1")), "");
  EXPECT_TRUE(happen(RevokeJoinToken{"t"}).reply.ok());
  EXPECT_TRUE(ask("t", member("b", "2")).starts_with("the token is none of this cluster"));
  EXPECT_TRUE(state.members.contains("a"));
  EXPECT_FALSE(happen(RevokeJoinToken{"t"}).reply.ok());
}

TEST_F(MembershipTest, ATokenIsForNamesOfItsPattern) {
  make_token("t", 5, 1h, "gpu-?");
  EXPECT_EQ(ask("t", member("gpu-1")), "");
  EXPECT_NE(ask("t", member("cpu-1", "other")).find("'gpu-?'"), std::string::npos);
}

TEST_F(MembershipTest, ThereAreOnlySoManyTokens) {
  for (std::size_t count = 0; count < join_tokens_max; ++count) make_token(std::to_string(count));
  EXPECT_FALSE(happen(MakeJoinToken{{.id = "more"}, 1h}).reply.ok());
}

TEST_F(MembershipTest, TheNameOfALivingNodeIsTaken) {
  make_token("t", 5);
  hello("a", "1");
  EXPECT_NE(ask("t", member("a", "2")).find("is that of another node"), std::string::npos);
  EXPECT_EQ(ask("t", member("a", "1")), "") << "it is that node";
  EXPECT_NE(ask("t", member("a", "2")).find("is that of another node"), std::string::npos);
}

TEST_F(MembershipTest, TheNameOfOneThatHasJustJoinedIsTaken) {
  make_token("t", 5);
  EXPECT_EQ(ask("t", member("a", "1")), "");
  EXPECT_NE(ask("t", member("a", "2")).find("is that of another node"), std::string::npos);
}

TEST_F(MembershipTest, WhoeverIsLostMakesWayForANewServerOfItsName) {
  make_token("t", 5);
  EXPECT_EQ(ask("t", member("a", "1")), "");
  hello("a", "1");
  hello("b", "3");
  lose("a");
  EXPECT_EQ(ask("t", member("a", "2")), "");
  EXPECT_EQ(state.members.at("a").key, "2");
}

TEST_F(MembershipTest, ARevokedNodeIsLostAtOnceAndItsHelloIsNotHeard) {
  make_token("t", 5);
  EXPECT_EQ(ask("t", member("a", "1")), "");
  hello("a", "1");
  const auto effects = happen(RevokeNode{"a"});
  EXPECT_TRUE(effects.reply.ok());
  EXPECT_TRUE(effects.members.contains("a") && effects.nodes.contains("a"));
  EXPECT_TRUE(state.nodes.at("a").lost);
  hello("a", "1");
  EXPECT_TRUE(state.nodes.at("a").lost) << "it was under way";
  EXPECT_FALSE(happen(Renew{member("a", "1")}).reply.ok());
  EXPECT_NE(ask("t", member("a", "1")).find("was revoked"), std::string::npos);
  EXPECT_EQ(ask("t", member("a", "2")), "") << "with a new key it may come back";
  hello("a", "2");
  EXPECT_FALSE(state.nodes.at("a").lost);
}

TEST_F(MembershipTest, OnlyWhoHasACertificateIsRevoked) {
  hello("a", "1");
  EXPECT_FALSE(happen(RevokeNode{"a"}).reply.ok());
  EXPECT_FALSE(state.nodes.at("a").lost);
}

TEST_F(MembershipTest, ARenewalIsForTheKeyThatIsKnown) {
  make_token("t");
  EXPECT_EQ(ask("t", member("a", "1")), "");
  now += 16h;
  EXPECT_TRUE(happen(Renew{member("a", "1")}).reply.ok());
  EXPECT_EQ(state.members.at("a").until, now + 24h);
  EXPECT_EQ(state.members.at("a").identity, "folder of 1");
  EXPECT_FALSE(happen(Renew{member("a", "2")}).reply.ok());
  EXPECT_FALSE(happen(Renew{member("b", "1")}).reply.ok());
}

TEST_F(MembershipTest, WhoeverIsOverForLongIsForgotten) {
  make_token("t");
  EXPECT_EQ(ask("t", member("a", "1")), "");
  now += 24h + members_kept;
  happen(Expire{});
  EXPECT_TRUE(state.members.contains("a"));
  now += 1s;
  Retention restless;
  restless.forgets_use = false;
  happen(Expire{restless});
  EXPECT_TRUE(state.members.contains("a")) << "the clock has just jumped";
  EXPECT_TRUE(happen(Expire{}).members.contains("a"));
  EXPECT_FALSE(state.members.contains("a"));
}

TEST_F(MembershipTest, ThatAControllerIsThereIsNotedNowAndThen) {
  state.loaded_at = now;
  EXPECT_TRUE(happen(Expire{}).cluster);
  EXPECT_EQ(state.there_at, now);
  const Instant before = now;
  now += presence_noted_every - 1s;
  EXPECT_FALSE(happen(Expire{}).cluster);
  now += 1s;
  EXPECT_TRUE(happen(Expire{}).cluster);
  state.loaded_at = now += 24h;
  EXPECT_FALSE(happen(Expire{}).cluster) << "one that ends at once was as good as away";
  EXPECT_EQ(state.there_at, before + presence_noted_every);
  now += presence_noted_every;
  EXPECT_TRUE(happen(Expire{}).cluster);
  state.loaded_at -= 10h;
  now -= 5h;
  EXPECT_TRUE(happen(Expire{}).cluster) << "the clock was set back";
}

TEST_F(MembershipTest, ARemovedNodeHasNoCertificateAnyMore) {
  make_token("t");
  EXPECT_EQ(ask("t", member("a", "1")), "");
  hello("a", "1");
  hello("b", "2");
  lose("a");
  EXPECT_TRUE(happen(RemoveNode{"a"}).members.contains("a"));
  EXPECT_FALSE(state.members.contains("a"));
}

TEST(Patterns, MatchAsThoseOfAShell) {
  EXPECT_TRUE(matches("gpu-*", "gpu-17"));
  EXPECT_TRUE(matches("gpu-*", "gpu-"));
  EXPECT_TRUE(matches("*-17", "gpu-17"));
  EXPECT_TRUE(matches("g*-1?", "gpu-17"));
  EXPECT_TRUE(matches("*a*b*", "xxaxxbxx"));
  EXPECT_TRUE(matches("gpu-17", "gpu-17"));
  EXPECT_FALSE(matches("gpu-?", "gpu-17"));
  EXPECT_FALSE(matches("gpu-1", "gpu-17"));
  EXPECT_FALSE(matches("", "gpu-17"));
  EXPECT_FALSE(matches("*a*b", "xxaxxbxx"));
  EXPECT_FALSE(matches(std::string(40, '*') + "x", std::string(200, 'a')));
}

}  // namespace
}  // namespace tutti::cluster
