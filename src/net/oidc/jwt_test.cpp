#include "net/oidc/jwt.hpp"

#include <map>

#include <gtest/gtest.h>

#include "net/oidc/base64url.hpp"
#include "net/oidc/fake/signing_key.hpp"

namespace tutti::oidc {
namespace {

constexpr std::int64_t now_s = 1'800'000'000;
constexpr const char* issuer = "https://issuer.example";

Instant at(std::int64_t seconds) { return Instant(std::chrono::seconds(seconds)); }

// The claims of a token that is fine, each of which a test may replace; "" leaves it out.
std::string claims_with(const std::map<std::string, std::string>& changed = {}) {
  std::map<std::string, std::string> all{{"iss", '"' + std::string(issuer) + '"'},
                                         {"aud", R"("tutti")"},
                                         {"sub", R"("248289761001")"},
                                         {"preferred_username", R"("ada")"},
                                         {"iat", std::to_string(now_s)},
                                         {"exp", std::to_string(now_s + 300)}};
  for (const auto& [name, value] : changed) all[name] = value;
  std::string text;
  for (const auto& [name, value] : all) {
    if (!value.empty()) text += (text.empty() ? "" : ",") + ('"' + name + "\":" + value);
  }
  return "{" + text + "}";
}

struct Jwt : testing::Test {
  Result<Identity> said(const std::string& token, const Expected& expected, Instant now = at(now_s)) const {
    return verify(token, keys, expected, now);
  }
  Result<Identity> said(const std::map<std::string, std::string>& changed, Instant now = at(now_s)) const {
    return said(key.sign(claims_with(changed)), expected, now);
  }
  // Refused, with this word in the reason and nothing of the token.
  void expect_refused(const Result<Identity>& result, const std::string& word) const {
    ASSERT_FALSE(result.ok()) << "expected: " << word;
    EXPECT_NE(result.error().text().find(word), std::string::npos) << result.error().text();
    EXPECT_EQ(result.error().code(), ErrorCode::invalid);
  }

  const SigningKey key = SigningKey::p256("one");
  const KeySet keys = *parse_jwks(jwks_of(key.jwk()));
  const Expected expected{.issuer = issuer, .client_id = "tutti"};
};

TEST_F(Jwt, EachAlgorithmOfTheListIsTaken) {
  for (const SigningKey& each : {SigningKey::rsa("r"), SigningKey::p256("p"), SigningKey::ed25519("e")}) {
    const auto its_keys = parse_jwks(jwks_of(each.jwk(), key.jwk()));
    ASSERT_TRUE(its_keys.ok()) << its_keys.error().text();
    const auto identity = verify(each.sign(claims_with()), *its_keys, expected, at(now_s));
    ASSERT_TRUE(identity.ok()) << each.algorithm() << ": " << identity.error().text();
    EXPECT_EQ(identity->name, "ada");
    EXPECT_EQ(identity->subject, "248289761001");
    EXPECT_EQ(identity->issuer, issuer);
    EXPECT_EQ(identity->expires_at, at(now_s + 300));
  }
}

TEST_F(Jwt, NoOtherAlgorithmIs) {
  const std::string unsigned_token =
      to_base64url(R"({"alg":"none"})") + "." + to_base64url(claims_with()) + ".";
  expect_refused(said(unsigned_token, expected), "'none'");
  for (const char* algorithm : {"None", "HS256", "RS512", "PS256", "ES384", "ES256K", "rs256", ""}) {
    const std::string header = R"({"alg":")" + std::string(algorithm) + R"(","kid":"one"})";
    expect_refused(said(key.sign(header, claims_with()), expected), "only RS256, ES256 and EdDSA are taken");
  }
  expect_refused(said(key.sign(R"({"kid":"one"})", claims_with()), expected), "alg");
  expect_refused(said(key.sign(R"({"alg":["ES256"],"kid":"one"})", claims_with()), expected), "alg");
}

TEST_F(Jwt, APublicKeyIsNoSecretOfHmac) {
  const SigningKey rsa = SigningKey::rsa("r");
  const auto its_keys = parse_jwks(jwks_of(rsa.jwk()));
  expect_refused(verify(rsa.sign_with_public_key(claims_with()), *its_keys, expected, at(now_s)), "'HS256'");
}

TEST_F(Jwt, AKeyVerifiesOnlyItsOwnAlgorithm) {
  const SigningKey rsa = SigningKey::rsa("one");
  expect_refused(said(rsa.sign(claims_with()), expected), "for another algorithm than RS256");
}

TEST_F(Jwt, WhatTheIssuersKeyHasNotSignedIsRefused) {
  const SigningKey stranger = SigningKey::p256("one");
  expect_refused(said(stranger.sign(claims_with()), expected), "signature");
  const std::string token = key.sign(claims_with());
  const std::size_t dot = token.rfind('.');
  const std::string other = key.sign(claims_with({{"preferred_username", R"("eve")"}}));
  expect_refused(said(other.substr(0, other.rfind('.')) + token.substr(dot), expected), "signature");
  expect_refused(said(token.substr(0, dot + 1), expected), "signature");
  const std::string zeros = token.substr(0, dot + 1) + to_base64url(std::string(64, '\0'));
  expect_refused(said(zeros, expected), "signature");
  expect_refused(said(token.substr(0, dot + 1) + to_base64url(std::string(63, '\1')), expected), "signature");
}

TEST_F(Jwt, OfEveryAlgorithmASignatureThatWasChangedIsRefused) {
  for (const SigningKey& each : {SigningKey::rsa("r"), SigningKey::p256("p"), SigningKey::ed25519("e")}) {
    const auto its_keys = parse_jwks(jwks_of(each.jwk()));
    const std::string text = to_base64url(each.header()) + "." + to_base64url(claims_with());
    std::string signature = each.signature(text);
    for (const std::size_t place : {std::size_t{0}, signature.size() / 2, signature.size() - 1}) {
      std::string changed = signature;
      changed[place] = static_cast<char>(changed[place] ^ 1);
      expect_refused(verify(text + "." + to_base64url(changed), *its_keys, expected, at(now_s)), "signature");
    }
    expect_refused(verify(text + "." + to_base64url(signature + '\0'), *its_keys, expected, at(now_s)),
                   "signature");
  }
}

TEST_F(Jwt, TheKeyIsTheOneThatItNames) {
  const SigningKey second = SigningKey::p256("two");
  const SigningKey unnamed = SigningKey::p256("");
  const KeySet both = *parse_jwks(jwks_of(key.jwk(), second.jwk()));
  EXPECT_TRUE(verify(second.sign(claims_with()), both, expected, at(now_s)).ok());
  expect_refused(verify(second.sign(key.header(), claims_with()), both, expected, at(now_s)), "signature");
  expect_refused(said(second.sign(claims_with()), expected), "no key with which");
  const std::string no_id = R"({"alg":"ES256"})";
  EXPECT_TRUE(said(key.sign(no_id, claims_with()), expected).ok()) << "there is only one that it can mean";
  expect_refused(verify(key.sign(no_id, claims_with()), both, expected, at(now_s)),
                 "which of the issuer's keys");
  for (const char* id : {R"("")", "1", "null", R"(["one"])"}) {
    const std::string header = R"({"alg":"ES256","kid":)" + std::string(id) + "}";
    expect_refused(said(key.sign(header, claims_with()), expected), "kid");
  }
  const std::string long_id = R"({"alg":"ES256","kid":")" + std::string(key_id_bytes_max + 1, 'k') + R"("})";
  expect_refused(said(key.sign(long_id, claims_with()), expected), "kid");
}

TEST_F(Jwt, KeysThatItBringsAlongAreNotLookedAt) {
  const SigningKey stranger = SigningKey::p256("evil");
  const std::string members =
      R"(,"jku":"https://evil.example/keys","x5u":"https://evil.example/c.pem","jwk":)";
  const std::string header = stranger.header(members + stranger.jwk());
  expect_refused(said(stranger.sign(header, claims_with()), expected), "no key with which");
  EXPECT_TRUE(said(key.sign(key.header(members + stranger.jwk()), claims_with()), expected).ok());
}

TEST_F(Jwt, WhatItDemandsAndNobodyUnderstandsIsRefused) {
  expect_refused(said(key.sign(key.header(R"(,"crit":["b64"],"b64":false)"), claims_with()), expected),
                 "crit");
  expect_refused(said(key.sign(key.header(R"(,"crit":[])"), claims_with()), expected), "crit");
}

TEST_F(Jwt, AnAccessTokenTellsNobodyWhoSomebodyIs) {
  for (const char* type : {R"("at+jwt")", R"("logout+jwt")", "1"}) {
    const std::string header = key.header(R"(,"typ":)" + std::string(type));
    expect_refused(said(key.sign(header, claims_with()), expected), "typ");
  }
  EXPECT_TRUE(said(key.sign(key.header(R"(,"typ":"jwt")"), claims_with()), expected).ok());
  EXPECT_TRUE(said(key.sign(key.header(""), claims_with()), expected).ok());
}

TEST_F(Jwt, OnlyTheIssuerToTheLetter) {
  for (const char* other : {R"("https://issuer.example/")", R"("https://evil.example")",
                            R"("HTTPS://issuer.example")", R"(["https://issuer.example"])", "null", ""})
    expect_refused(said({{"iss", other}}), "iss");
}

TEST_F(Jwt, OnlyForUs) {
  for (const char* other : {R"("other")", R"(["other"])", "[]", R"("tuttifrutti")", "1", ""})
    expect_refused(said({{"aud", other}}), "aud");
  EXPECT_TRUE(said({{"aud", R"(["tutti"])"}}).ok());
  expect_refused(said({{"aud", R"(["tutti","other"])"}}), "azp");
  expect_refused(said({{"aud", R"(["tutti","other"])"}, {"azp", R"("other")"}}), "azp");
  EXPECT_TRUE(said({{"aud", R"(["other","tutti"])"}, {"azp", R"("tutti")"}}).ok());
  expect_refused(said({{"azp", R"("other")"}}), "azp");
  expect_refused(said({{"azp", "7"}}), "azp");
}

TEST_F(Jwt, OnlyInItsTimeGiveOrTakeAMinute) {
  EXPECT_TRUE(said({}, at(now_s + 359)).ok());
  expect_refused(said({}, at(now_s + 360)), "expired");
  EXPECT_TRUE(said({}, at(now_s - 60)).ok());
  expect_refused(said({}, at(now_s - 61)), "in the future (iat)");
  EXPECT_TRUE(said({{"nbf", std::to_string(now_s + 60)}}).ok());
  expect_refused(said({{"nbf", std::to_string(now_s + 61)}}), "nbf");
  const std::map<std::string, std::string> long_lived{{"exp", std::to_string(now_s + 86'400)}};
  EXPECT_TRUE(said(long_lived, at(now_s + 659)).ok());
  expect_refused(said(long_lived, at(now_s + 660)), "too long ago (iat)");
  EXPECT_TRUE(said({{"exp", std::to_string(now_s + 300) + ".5"}}).ok());
}

TEST_F(Jwt, TimesThatAreNoneAreRefused) {
  for (const char* time : {R"("1800000300")", "-1", "1e300", "253402300800", "null", "true", "[]"}) {
    expect_refused(said({{"exp", time}}), "exp");
    expect_refused(said({{"iat", time}}), "iat");
    expect_refused(said({{"nbf", time}}), "nbf");
  }
  expect_refused(said({{"exp", ""}}), "exp");
  expect_refused(said({{"iat", ""}}), "iat");
}

TEST_F(Jwt, OnlyForThisLogin) {
  Expected with_nonce = expected;
  with_nonce.nonce = "n-1";
  EXPECT_TRUE(said(key.sign(claims_with({{"nonce", R"("n-1")"}})), with_nonce).ok());
  for (const char* other : {R"("n-2")", R"("")", "1", ""})
    expect_refused(said(key.sign(claims_with({{"nonce", other}})), with_nonce), "nonce");
}

TEST_F(Jwt, WhomItMeansIsSaid) {
  for (const char* nobody : {"", R"("")", "7", "null"}) expect_refused(said({{"sub", nobody}}), "sub");
  expect_refused(said({{"sub", '"' + std::string(subject_bytes_max + 1, 's') + '"'}}), "sub");
}

TEST_F(Jwt, TheNameIsWhatTheConfigurationSays) {
  Expected by_claim = expected;
  by_claim.name_claim = "upn";
  const auto named = said(key.sign(claims_with({{"upn", R"("lovelace")"}})), by_claim);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->name, "lovelace");
  expect_refused(said(key.sign(claims_with()), by_claim), "upn");
  EXPECT_EQ(said({{"preferred_username", ""}, {"sub", R"("a-1")"}})->name, "a-1");
  expect_refused(said({{"preferred_username", "7"}}), "preferred_username");
  expect_refused(said({{"preferred_username", ""}}), "digits alone");
}

TEST_F(Jwt, AnAddressIsANameOnlyIfSomebodyHasVerifiedIt) {
  Expected by_email = expected;
  by_email.name_claim = "email";
  const auto with = [&](const char* verified) {
    return said(key.sign(claims_with({{"email", R"("ada@example.org")"}, {"email_verified", verified}})),
                by_email);
  };
  ASSERT_TRUE(with("true").ok());
  EXPECT_EQ(with("true")->name, "ada@example.org");
  for (const char* no : {"false", R"("true")", "1", "null", ""}) expect_refused(with(no), "email_verified");
}

TEST_F(Jwt, NamesHaveTheLettersOfAccounts) {
  for (const char* name : {"ada", "ada.lovelace", "a", "_svc", "x-1", "9lives", "ada@example.org"})
    EXPECT_TRUE(is_name(name)) << name;
  const std::string longest(name_bytes_max, 'a');
  EXPECT_TRUE(is_name(longest));
  for (const std::string& name :
       {std::string(), longest + "a", std::string("-rf"), std::string(".."), std::string("@x"),
        std::string("a/b"), std::string("a b"), std::string("a:b"), std::string("a\n"),
        std::string("a\0b", 3), std::string("0"), std::string("1000"), std::string("\xC3\xA4"),
        std::string("a$(x)"), std::string("a,b"), std::string("Ada"), std::string("adA")})
    EXPECT_FALSE(is_name(name)) << name;
  expect_refused(said({{"preferred_username", R"("../root")"}}), "cannot be the name");
  expect_refused(said({{"preferred_username", R"("Ada")"}}), "small letters");
}

TEST_F(Jwt, WhatNobodyAsksForIsNotLookedAt) {
  for (const char* odd : {"7", "null", R"([["a"]])", R"({"x":[7]})"})
    EXPECT_TRUE(said({{"groups", odd}}).ok());
}

TEST_F(Jwt, WhatNeverExpiresDoesSoAtTheEndOfTime) {
  const auto expires = [&](const char* seconds) { return said({{"exp", seconds}})->expires_at; };
  EXPECT_EQ(expires("9223372036"), at(9'223'372'036)) << "the last second that there is";
  for (const char* later : {"9223372037", "20000000000", "253402300799"})
    EXPECT_EQ(expires(later), at(9'223'372'036)) << later;
  expect_refused(said({{"exp", "253402300800"}}), "exp");
}

TEST_F(Jwt, WhatIsNoTokenIsRefused) {
  const std::string token = key.sign(claims_with());
  for (const std::string& wrong :
       {std::string(), std::string("."), std::string(".."), std::string("a.b"), token + ".", token + ".x",
        " " + token, token + "\n", token + "=", token.substr(0, token.size() - 1), "." + token})
    EXPECT_FALSE(said(wrong, expected).ok()) << wrong;
  expect_refused(said(std::string(token_bytes_max + 1, 'a'), expected), "longer than");
  expect_refused(said(key.sign(R"({"alg":"ES256","alg":"none","kid":"one"})", claims_with()), expected),
                 "twice");
  expect_refused(said(key.sign(R"({"iss":"x",)" + claims_with().substr(1)), expected), "twice");
  expect_refused(said(key.sign("[]"), expected), "no object");
  expect_refused(said(key.sign(key.header(), std::string(70, '[')), expected), "JSON");
}

TEST_F(Jwt, ErrorsHoldNothingOfTheToken) {
  const std::string secret = "s3cr3t";
  for (const char* claim : {"iss", "aud", "azp", "exp", "iat", "nbf", "sub", "preferred_username"}) {
    const auto refused = said({{claim, R"(["s3cr3t"])"}});
    ASSERT_FALSE(refused.ok()) << claim;
    EXPECT_EQ((refused.error().text() + refused.error().remedy()).find(secret), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::oidc
