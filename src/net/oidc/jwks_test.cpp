#include "net/oidc/jwks.hpp"

#include <gtest/gtest.h>

#include "net/oidc/base64url.hpp"
#include "net/oidc/fake/signing_key.hpp"

namespace tutti::oidc {
namespace {

Instant at(Duration time) { return Instant(time); }

std::string why_refused(const std::string& jwk) {
  static const SigningKey good = SigningKey::p256("good");
  const auto keys = parse_jwks(jwks_of(good.jwk(), jwk));
  if (!keys) return keys.error().text();
  return keys->refused.empty() ? "" : keys->refused.front().why;
}

TEST(Jwks, KeysOfTheThreeKindsAreTaken) {
  for (const SigningKey& key : {SigningKey::rsa("r"), SigningKey::p256("p"), SigningKey::ed25519("e")}) {
    const auto keys =
        parse_jwks(jwks_of(key.jwk(R"(,"use":"sig","key_ops":["verify"],"alg":")" + key.algorithm() + '"')));
    ASSERT_TRUE(keys.ok()) << keys.error().text();
    ASSERT_EQ(keys->keys.size(), 1U);
    EXPECT_EQ(name_of(keys->keys.front().algorithm), key.algorithm());
    EXPECT_TRUE(is_signed_by(keys->keys.front(), "text", key.signature("text")));
    EXPECT_FALSE(is_signed_by(keys->keys.front(), "texT", key.signature("text")));
  }
}

TEST(Jwks, AKeyThatIsTooWeakIsNotUsed) {
  const std::string why = why_refused(SigningKey::rsa("weak", 1024).jwk());
  EXPECT_NE(why.find("it has 1024 bits, and 2048 are the least"), std::string::npos) << why;
  const auto alone = parse_jwks(jwks_of(SigningKey::rsa("weak", 1024).jwk()));
  ASSERT_FALSE(alone.ok());
  EXPECT_NE(alone.error().text().find("1024 bits"), std::string::npos) << alone.error().text();
}

TEST(Jwks, AKeyIsUsedForWhatItIs) {
  const SigningKey key = SigningKey::p256("k");
  EXPECT_NE(why_refused(key.jwk(R"(,"use":"enc")")).find("use"), std::string::npos);
  EXPECT_NE(why_refused(key.jwk(R"(,"use":7)")).find("use"), std::string::npos);
  EXPECT_NE(why_refused(key.jwk(R"(,"alg":"ES384")")).find("alg"), std::string::npos);
  EXPECT_NE(why_refused(key.jwk(R"(,"key_ops":["sign"])")).find("key_ops"), std::string::npos);
  EXPECT_NE(why_refused(key.jwk(R"(,"key_ops":"verify")")).find("key_ops"), std::string::npos);
  EXPECT_NE(why_refused(key.jwk(R"(,"d":"AAAA")")).find("secret part"), std::string::npos);
  EXPECT_NE(why_refused(R"({"kty":"oct","kid":"h","k":"c2VjcmV0"})").find("kty"), std::string::npos);
  EXPECT_EQ(why_refused(key.jwk("")), "") << "what it does not say, does not matter";
}

TEST(Jwks, WhatIsNoKeyIsNotUsed) {
  const std::string zeros(43, 'A');
  EXPECT_NE(why_refused(R"({"kty":"EC","crv":"P-256","x":")" + zeros + R"(","y":")" + zeros + R"("})")
                .find("curve"),
            std::string::npos);
  EXPECT_NE(why_refused(R"({"kty":"EC","crv":"P-384","x":")" + zeros + R"(","y":")" + zeros + R"("})")
                .find("P-256"),
            std::string::npos);
  EXPECT_NE(why_refused(R"({"kty":"EC","crv":"P-256","x":"AA","y":"AA"})").find("32 bytes"),
            std::string::npos);
  EXPECT_NE(why_refused(R"({"kty":"OKP","crv":"Ed25519","x":"AA"})").find("32 bytes"), std::string::npos);
  EXPECT_NE(why_refused(R"({"kty":"OKP","crv":"X25519","x":")" + zeros + R"("})").find("Ed25519"),
            std::string::npos);
  EXPECT_NE(why_refused(R"({"kty":"RSA","n":"!","e":"AQAB"})").find("number"), std::string::npos);
  const std::string even = to_base64url('\x80' + std::string(255, '\0'));
  EXPECT_NE(why_refused(R"({"kty":"RSA","n":")" + even + R"(","e":"AQAB"})").find("no key of RSA"),
            std::string::npos);
  const std::string odd = to_base64url('\x80' + std::string(254, '\0') + '\1');
  for (const char* exponent : {"AQ", "AA", "Ag", "AQAAAAE"}) {
    const std::string why = why_refused(R"({"kty":"RSA","n":")" + odd + R"(","e":")" + exponent + R"("})");
    EXPECT_NE(why.find("no key of RSA"), std::string::npos) << exponent << ": " << why;
  }
  const std::string huge = to_base64url(std::string(1025, '\x81'));
  EXPECT_NE(why_refused(R"({"kty":"RSA","n":")" + huge + R"(","e":"AQAB"})").find("n or e"),
            std::string::npos);
}

TEST(Jwks, ATokenHearsWhyItsKeyCannotBeUsed) {
  const SigningKey key = SigningKey::p256("k");
  const auto keys = parse_jwks(jwks_of(key.jwk(), SigningKey::rsa("weak", 1024).jwk()));
  const auto found = keys->find("weak", Algorithm::rs256);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().text().find("1024 bits"), std::string::npos) << found.error().text();
  EXPECT_TRUE(keys->knows("weak") && keys->knows("k") && keys->knows(""));
  EXPECT_FALSE(keys->knows("other"));
}

TEST(Jwks, ListsThatAreNoneAreRefused) {
  const SigningKey key = SigningKey::p256("k");
  std::string many = key.jwk();
  for (std::size_t count = 0; count < keys_max; ++count) many += "," + key.jwk();
  for (const std::string& wrong :
       {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"keys":{}})"),
        std::string(R"({"keys":[]})"), std::string(R"({"keys":[7]})"),
        R"({"keys":[],"keys":[)" + key.jwk() + "]}", jwks_of(many), std::string(jwks_bytes_max + 1, ' '),
        jwks_of(SigningKey::p256(std::string(key_id_bytes_max + 1, 'k')).jwk()),
        jwks_of(key.jwk(R"(,"kid":"again")"))})
    EXPECT_FALSE(parse_jwks(wrong).ok()) << wrong.substr(0, 100);
}

struct Ring : testing::Test {
  KeySet keys_named(const std::string& id) const {
    return *parse_jwks(jwks_of(SigningKey::ed25519(id).jwk()));
  }

  KeyRing ring;
};

TEST_F(Ring, TheFirstKeysAreAskedForAtOnceAndThenNowAndThen) {
  EXPECT_TRUE(ring.wants_fetch("a", at(0s)));
  EXPECT_EQ(ring.keys(at(0s)), nullptr);
  ring.asked(at(0s));
  EXPECT_FALSE(ring.wants_fetch("a", at(first_keys_asked_every - 1ns)));
  EXPECT_TRUE(ring.wants_fetch("a", at(first_keys_asked_every)));
}

TEST_F(Ring, AKeyThatIsNotKnownIsAskedForAtMostOnceAMinute) {
  ring.asked(at(0s));
  ring.took(keys_named("a"), at(1s));
  EXPECT_FALSE(ring.wants_fetch("a", at(2min)));
  EXPECT_FALSE(ring.wants_fetch("b", at(59s)));
  EXPECT_TRUE(ring.wants_fetch("b", at(60s)));
  ring.asked(at(60s));
  for (Duration time = 60s; time < 120s; time += 1s)
    EXPECT_FALSE(ring.wants_fetch(std::to_string(time.count()), at(time)));
  EXPECT_TRUE(ring.wants_fetch("c", at(120s)));
  EXPECT_FALSE(ring.wants_fetch("", at(120s))) << "it names none, and there are some";
}

TEST_F(Ring, KeysAreAskedForAgainAfterAnHourAndKeptForADayMeanwhile) {
  ring.asked(at(0s));
  ring.took(keys_named("a"), at(0s));
  EXPECT_FALSE(ring.wants_fetch("a", at(keys_age_max - 1ns)));
  EXPECT_TRUE(ring.wants_fetch("a", at(keys_age_max)));
  ring.asked(at(keys_age_max));
  EXPECT_FALSE(ring.wants_fetch("a", at(keys_age_max + 59s))) << "it did not answer";
  EXPECT_NE(ring.keys(at(keys_kept_max - 1ns)), nullptr);
  EXPECT_EQ(ring.keys(at(keys_kept_max)), nullptr);
  EXPECT_TRUE(ring.wants_fetch("a", at(keys_kept_max)));
}

TEST_F(Ring, NewKeysTakeThePlaceOfTheOld) {
  ring.took(keys_named("a"), at(0s));
  ring.took(keys_named("b"), at(1s));
  EXPECT_TRUE(ring.keys(at(1s))->knows("b"));
  EXPECT_FALSE(ring.keys(at(1s))->knows("a"));
}

}  // namespace
}  // namespace tutti::oidc
