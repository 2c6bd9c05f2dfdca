#include "net/oidc/flow.hpp"

#include <set>

#include <gtest/gtest.h>

namespace tutti::oidc {
namespace {

const Provider provider{.issuer = "https://issuer.example",
                        .keys_url = "https://issuer.example/k",
                        .token_url = "https://issuer.example/t",
                        .authorization_url = "https://issuer.example/a",
                        .device_url = "https://issuer.example/d"};
const Client client{.id = "tutti", .scopes = "openid profile"};

Instant from_start(Duration time) { return Instant(time); }

TEST(BrowserLogin, ItsSecretsAreItsOwn) {
  std::set<std::string> seen;
  for (int count = 0; count < 3; ++count) {
    const auto login = begin_browser_login("http://127.0.0.1:1/callback");
    ASSERT_TRUE(login.ok());
    for (const std::string& secret : {login->state, login->nonce, login->verifier}) {
      EXPECT_EQ(secret.size(), 43U);
      EXPECT_TRUE(seen.insert(secret).second);
    }
  }
}

// The example of RFC 7636.
TEST(BrowserLogin, AVerifierIsProvedByItsHash) {
  EXPECT_EQ(challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
}

TEST(BrowserLogin, TheBrowserIsSentWithAllButTheVerifier) {
  const BrowserLogin login{"http://127.0.0.1:1/callback", "st", "no", "ve"};
  const std::string url = address_for(provider, client, login);
  EXPECT_EQ(url, "https://issuer.example/a?client_id=tutti&code_challenge=" + challenge_of("ve") +
                     "&code_challenge_method=S256&nonce=no&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fcallback"
                     "&response_type=code&scope=openid%20profile&state=st");
  EXPECT_EQ(code_form(client, login, "c").at("code_verifier"), "ve");
  EXPECT_EQ(code_form(client, login, "c").at("redirect_uri"), login.redirect_url);
}

TEST(BrowserLogin, OnlyAnAnswerToItsOwnQuestionCounts) {
  const BrowserLogin login{"http://127.0.0.1:1/callback", "st", "no", "ve"};
  using Query = std::map<std::string, std::string>;
  for (const Query& strange : {Query{}, Query{{"code", "c"}}, Query{{"code", "c"}, {"state", "sT"}},
                               Query{{"code", "c"}, {"state", ""}}, Query{{"error", "access_denied"}}})
    EXPECT_FALSE(code_from(strange, provider, login));
  const auto code = code_from({{"code", "c"}, {"state", "st"}}, provider, login);
  ASSERT_TRUE(code && code->ok());
  EXPECT_EQ(**code, "c");
  EXPECT_TRUE(code_from({{"code", "c"}, {"state", "st"}, {"iss", provider.issuer}}, provider, login)->ok());
  EXPECT_FALSE(
      code_from({{"code", "c"}, {"state", "st"}, {"iss", "https://evil.example"}}, provider, login)->ok());
  EXPECT_FALSE(code_from({{"state", "st"}}, provider, login)->ok());
  EXPECT_FALSE(code_from({{"state", "st"}, {"code", std::string(4097, 'c')}}, provider, login)->ok());
}

TEST(BrowserLogin, ARefusalIsShownAndNotObeyed) {
  const BrowserLogin login{"http://127.0.0.1:1/callback", "st", "no", "ve"};
  const auto refused =
      code_from({{"state", "st"}, {"error", "in\x1b[2Jvalid"}, {"error_description", std::string(1000, 'x')}},
                provider, login);
  ASSERT_TRUE(refused && !refused->ok());
  EXPECT_EQ(refused->error().text().find('\x1b'), std::string::npos);
  EXPECT_LT(refused->error().text().size(), 600U);
  const auto denied = code_from({{"state", "st"}, {"error", "access_denied"}}, provider, login);
  EXPECT_NE(denied->error().text().find("it was not allowed there"), std::string::npos);
}

TEST(TokenAnswer, IsATokenOrTheWordForWhyNot) {
  EXPECT_EQ(read_token_answer(200, R"({"id_token":"a.b.c","access_token":"x"})")->id_token, "a.b.c");
  EXPECT_EQ(read_token_answer(400, R"({"error":"slow_down"})")->refusal, "slow_down");
  for (const auto& [status, wrong] : {std::pair<int, std::string>{200, "{}"},
                                      {200, R"({"access_token":"x"})"},
                                      {200, R"({"id_token":7})"},
                                      {200, "<html>"},
                                      {500, "oops"},
                                      {400, "{}"},
                                      {200, R"({"id_token":")" + std::string(20'000, 'a') + R"("})"},
                                      {200, R"({"id_token":"a","id_token":"b"})"}})
    EXPECT_FALSE(read_token_answer(status, wrong).ok()) << wrong.substr(0, 100);
}

std::string device_answer(const std::string& more = "",
                          const std::string& url = "https://issuer.example/device") {
  return R"({"device_code":"dc","user_code":"AB-CD","verification_uri":")" + url + '"' + more + "}";
}

TEST(DeviceGrant, SaysWhatToTypeInAndWhere) {
  const std::string page("https://issuer.example/device");
  const std::string whole = R"(,"verification_uri_complete":")" + page + R"(?c=AB-CD")";
  const auto grant = read_device_answer(200, device_answer(whole + R"(,"expires_in":600,"interval":7)"));
  ASSERT_TRUE(grant.ok()) << grant.error().text();
  EXPECT_EQ(grant->user_code, "AB-CD");
  EXPECT_EQ(grant->url, "https://issuer.example/device");
  EXPECT_EQ(grant->whole_url, "https://issuer.example/device?c=AB-CD");
  EXPECT_EQ(grant->lifetime, 600s);
  EXPECT_EQ(grant->interval, 7s);
  EXPECT_EQ(read_device_answer(200, device_answer())->interval, device_interval_default);
  EXPECT_EQ(read_device_answer(200, device_answer(R"(,"interval":0)"))->interval, 1s);
  EXPECT_EQ(read_device_answer(200, device_answer(R"(,"interval":1e9)"))->interval, device_interval_max);
  EXPECT_EQ(read_device_answer(200, device_answer(R"(,"expires_in":1e300)"))->lifetime, device_time_max);
  EXPECT_EQ(device_token_form(client, *grant).at("device_code"), "dc");
}

TEST(DeviceGrant, WhatCannotBeShownOrAskedIsRefused) {
  for (const std::string& wrong :
       {std::string("{}"), device_answer(R"(,"interval":"5")"), device_answer(R"(,"expires_in":-1)"),
        device_answer("", "http://evil.example/"), device_answer("", "javascript:x"),
        device_answer(R"(,"verification_uri_complete":"https://issuer.example/\u001b")"),
        std::string(
            R"({"device_code":"dc","user_code":"\u001b[2J","verification_uri":"https://issuer.example/"})"),
        R"({"device_code":"dc","user_code":")" + std::string(65, 'A') +
            R"(","verification_uri":"https://issuer.example/"})",
        std::string(R"({"user_code":"A","verification_uri":"https://issuer.example/"})")})
    EXPECT_FALSE(read_device_answer(200, wrong).ok()) << wrong.substr(0, 100);
  EXPECT_FALSE(read_device_answer(400, R"({"error":"invalid_client"})").ok());
  EXPECT_FALSE(read_device_answer(404, "nothing").ok());
}

struct Waiting : testing::Test {
  Result<std::optional<std::string>> hear(const std::string& refusal, Duration time) {
    return wait.heard({"", refusal, ""}, from_start(time));
  }

  DeviceWait wait{{"dc", "uc", "u", "", 600s, 5s}, from_start(0s)};
};

TEST_F(Waiting, AsksAtTheIntervalAndFiveSecondsLaterWhenItIsTooFast) {
  EXPECT_EQ(wait.next_at(), from_start(5s));
  EXPECT_TRUE(hear("authorization_pending", 5s).ok());
  EXPECT_EQ(wait.next_at(), from_start(10s));
  EXPECT_TRUE(hear("slow_down", 10s).ok());
  EXPECT_EQ(wait.next_at(), from_start(20s));
  EXPECT_TRUE(hear("authorization_pending", 20s).ok());
  EXPECT_EQ(wait.next_at(), from_start(30s)) << "and it stays so";
  for (int count = 0; count < 100; ++count) EXPECT_TRUE(hear("slow_down", 30s).ok());
  EXPECT_EQ(wait.next_at(), from_start(30s + device_interval_max));
}

TEST_F(Waiting, EndsWithATokenOrWithAWord) {
  EXPECT_EQ(*wait.heard({"a.b.c", "", ""}, from_start(5s)), "a.b.c");
  EXPECT_NE(hear("expired_token", 5s).error().text().find("not typed in in time"), std::string::npos);
  EXPECT_NE(hear("access_denied", 5s).error().text().find("says no"), std::string::npos);
  EXPECT_NE(hear("invalid_grant", 5s).error().text().find("invalid_grant"), std::string::npos);
  EXPECT_FALSE(wait.is_over(from_start(599s)));
  EXPECT_TRUE(wait.is_over(from_start(600s)));
}

TEST_F(Waiting, WhoDoesNotAnswerIsAskedLessOften) {
  wait.unheard(from_start(5s));
  EXPECT_EQ(wait.next_at(), from_start(15s));
  wait.unheard(from_start(15s));
  EXPECT_EQ(wait.next_at(), from_start(35s));
}

}  // namespace
}  // namespace tutti::oidc
