// Whose word is believed: an issuer of the test's own, and others who say that they are it.
#include "control/controller/login.hpp"

#include <gtest/gtest.h>

#include "net/oidc/base64url.hpp"
#include "net/oidc/fake/fake_issuer.hpp"
#include "net/oidc/fake/signing_key.hpp"

namespace tutti::controller {
namespace {

using oidc::SigningKey;

constexpr std::int64_t made_at_s = 1'800'000'000;

struct LoginTest : testing::Test {
  LoginTest() { issuer.set_keys(oidc::jwks_of(key.jwk())); }

  LoginOptions options() const { return {.issuer = issuer.url(), .client_id = "tutti"}; }
  // Each is another token: one is good for once.
  std::string claims(const std::string& more = "", const std::string& audience = "tutti") {
    return R"({"iss":")" + issuer.url() + R"(","aud":")" + audience +
           R"(","sub":"s","preferred_username":"ada","jti":")" + std::to_string(++made) + R"(","iat":)" +
           std::to_string(made_at_s) + R"(,"exp":)" + std::to_string(made_at_s + 300) + more + "}";
  }
  void expect_refused(const std::string& token, const std::string& why, const std::string& nonce = "") {
    const auto reply = login.log_in({token, nonce}, "10.0.0.1");
    ASSERT_FALSE(reply.ok()) << why;
    EXPECT_EQ(reply.error().code(), ErrorCode::invalid);
    EXPECT_NE(reply.error().text().find(why), std::string::npos) << reply.error().text();
  }
  bool is_taken(const std::string& token) { return login.log_in({token, ""}, "10.0.0.1").ok(); }

  const SigningKey key = SigningKey::rsa("first");
  int made = 0;
  bool gives = true;
  oidc::FakeIssuer issuer;
  std::vector<oidc::Identity> given;
  Instant steady{1h};
  Instant wall{std::chrono::seconds(made_at_s + 1)};
  Login login{options(),
              [this](const oidc::Identity& identity, const std::string&) {
                if (!gives) return Result<std::string>(failed("the disk is full"));
                given.push_back(identity);
                return Result<std::string>("token of " + identity.name);
              },
              [this] { return steady; }, [this] { return wall; }};
};

TEST_F(LoginTest, WhomTheIssuerNamesGetsAToken) {
  const auto reply = login.log_in({key.sign(claims(R"(,"nonce":"n")")), "n"}, "10.0.0.1");
  ASSERT_TRUE(reply.ok()) << reply.error().text();
  EXPECT_EQ(reply->token, "token of ada");
  EXPECT_EQ(reply->user, "ada");
  ASSERT_EQ(given.size(), 1U);
  EXPECT_EQ(given.front().issuer, issuer.url());
  EXPECT_EQ(given.front().subject, "s");
}

TEST_F(LoginTest, NobodyElseDoes) {
  const SigningKey stranger = SigningKey::rsa("first");
  expect_refused(stranger.sign(claims()), "signature");
  expect_refused(key.sign(claims("", "other")), "aud");
  expect_refused(key.sign(R"({"iss":"https://evil.example","aud":"tutti"})"), "iss");
  expect_refused(key.sign(claims(R"(,"nonce":"other")")), "nonce", "n");
  expect_refused(key.sign_with_public_key(claims()), "HS256");
  expect_refused(oidc::to_base64url(R"({"alg":"none"})") + "." + oidc::to_base64url(claims()) + ".", "none");
  expect_refused(SigningKey::rsa("second").sign(claims()), "no key with which");
  wall += 10min;
  expect_refused(key.sign(claims()), "expired");
  EXPECT_TRUE(given.empty());
}

TEST_F(LoginTest, ATokenOfTheIssuerIsGoodForOnce) {
  const SigningKey point = SigningKey::p256("point");
  issuer.set_keys(oidc::jwks_of(key.jwk(), point.jwk()));
  const std::string of_rsa = key.sign(claims());
  gives = false;
  EXPECT_FALSE(is_taken(of_rsa));
  gives = true;
  EXPECT_TRUE(is_taken(of_rsa)) << "nobody has got anything for it yet";
  expect_refused(of_rsa, "somebody has logged in with it before");
  // The same words, signed anew: the signature of this algorithm is another one each time.
  const std::string words = claims();
  const std::string first = point.sign(words);
  const std::string second = point.sign(words);
  ASSERT_NE(first, second);
  EXPECT_TRUE(is_taken(first));
  expect_refused(second, "somebody has logged in with it before");
  wall += 4min;
  expect_refused(of_rsa, "before");
  EXPECT_TRUE(is_taken(key.sign(claims()))) << "another one";
}

TEST(Redeemed, AreRememberedAsLongAsTheyCouldBeTakenAndBounded) {
  Redeemed redeemed;
  const Instant now{1000h};
  redeemed.add("a.b.c", now);
  EXPECT_TRUE(redeemed.has("a.b.other", now + 12min));
  EXPECT_FALSE(redeemed.has("a.c.c", now));
  EXPECT_FALSE(redeemed.has("a.b.c", now + 12min + 1s));
  for (int at = 0; at <= 50'000; ++at) redeemed.add(std::to_string(at) + ".x", now);
  EXPECT_FALSE(redeemed.has("0.x", now)) << "the oldest makes room";
  EXPECT_TRUE(redeemed.has("1.x", now) && redeemed.has("50000.x", now));
}

TEST_F(LoginTest, KeysAreFetchedOnceAndNewOnesWhenTheyAreNamed) {
  EXPECT_EQ(issuer.asked("/keys"), 0) << "nobody is asked before somebody logs in";
  EXPECT_TRUE(is_taken(key.sign(claims())) && is_taken(key.sign(claims())));
  EXPECT_EQ(issuer.asked("/keys"), 1);
  const SigningKey rotated = SigningKey::ed25519("second");
  issuer.set_keys(oidc::jwks_of(rotated.jwk()));
  EXPECT_FALSE(is_taken(rotated.sign(claims()))) << "strangers can name keys, too";
  steady += oidc::keys_asked_every;
  EXPECT_TRUE(is_taken(rotated.sign(claims())));
  EXPECT_FALSE(is_taken(key.sign(claims()))) << "it is none of the issuer's any more";
  EXPECT_EQ(issuer.asked("/keys"), 2);
}

TEST_F(LoginTest, AnIssuerThatDoesNotAnswerIsSaidSoAndAskedAgain) {
  issuer.say("/keys", "", 500);
  const auto away = login.log_in({key.sign(claims()), ""}, "10.0.0.1");
  ASSERT_FALSE(away.ok());
  EXPECT_EQ(away.error().code(), ErrorCode::failed) << "it may go well another time";
  EXPECT_NE(away.error().text().find("HTTP status 500"), std::string::npos) << away.error().text();
  EXPECT_FALSE(is_taken(key.sign(claims())));
  EXPECT_EQ(issuer.asked("/keys"), 1);
  issuer.set_keys(oidc::jwks_of(key.jwk()));
  steady += oidc::first_keys_asked_every;
  EXPECT_TRUE(is_taken(key.sign(claims())));
}

TEST_F(LoginTest, WhileTheIssuerDoesNotAnswerItsKeysAreKeptForADay) {
  EXPECT_TRUE(is_taken(key.sign(claims())));
  issuer.say("/.well-known/openid-configuration", "", 503);
  steady += oidc::keys_age_max;
  EXPECT_TRUE(is_taken(key.sign(claims())));
  EXPECT_EQ(issuer.asked("/.well-known/openid-configuration"), 2);
  steady += oidc::keys_kept_max - oidc::keys_age_max;
  EXPECT_FALSE(is_taken(key.sign(claims())));
}

TEST_F(LoginTest, WhatSaysThatItIsTheIssuerIsNotBelieved) {
  std::string other = issuer.discovery();
  other.replace(other.find(issuer.url()), issuer.url().size(), "https://evil.example");
  issuer.say("/.well-known/openid-configuration", other);
  const auto refused = login.log_in({key.sign(claims()), ""}, "10.0.0.1");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("it is of the issuer 'https://evil.example'"), std::string::npos)
      << refused.error().text();
}

TEST_F(LoginTest, WhatIsNoTokenCostsTheIssuerNothing) {
  expect_refused("a.b.c", "the issuer's token");
  EXPECT_EQ(issuer.asked("/.well-known/openid-configuration"), 0);
}

TEST(LoginOptions, AreWholeAndSound) {
  EXPECT_TRUE(check_login({}).ok());
  EXPECT_TRUE(check_login({.issuer = "https://issuer.example", .client_id = "tutti"}).ok());
  EXPECT_FALSE(check_login({.issuer = "https://issuer.example"}).ok());
  EXPECT_FALSE(check_login({.client_id = "tutti"}).ok());
  EXPECT_FALSE(check_login({.issuer = "http://issuer.example", .client_id = "tutti"}).ok());
  EXPECT_FALSE(
      check_login({.issuer = "https://issuer.example", .client_id = "tutti", .ca_file = "/nowhere"}).ok());
}

}  // namespace
}  // namespace tutti::controller
