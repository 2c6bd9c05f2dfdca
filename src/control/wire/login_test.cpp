#include "control/wire/login.hpp"

#include <gtest/gtest.h>

namespace tutti::wire {
namespace {

TEST(LoginWire, BothEndsMeanTheSame) {
  const auto settings =
      decode_login_settings(login_settings_json({"https://issuer.example", "tutti", "openid"}));
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->issuer, "https://issuer.example");
  EXPECT_EQ(settings->client_id, "tutti");
  EXPECT_EQ(settings->scopes, "openid");
  const auto request = decode_login(login_json({"a.b.c", "n"}));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->id_token, "a.b.c");
  EXPECT_EQ(request->nonce, "n");
  EXPECT_EQ(decode_login(R"({"id_token":"a.b.c"})")->nonce, "");
  const auto reply = decode_logged_in(logged_in_json({"secret", "ada"}));
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->token, "secret");
  EXPECT_EQ(reply->user, "ada");
}

TEST(LoginWire, WhatLacksWhatIsNeededIsRefused) {
  for (const char* wrong : {"", "[]", "{}", R"({"issuer":"https://a"})", R"({"issuer":7,"client_id":"x"})"})
    EXPECT_FALSE(decode_login_settings(wrong).ok()) << wrong;
  for (const char* wrong : {"", "{}", R"({"id_token":""})", R"({"nonce":"n"})", R"({"id_token":["a"]})"})
    EXPECT_EQ(decode_login(wrong).error().code(), ErrorCode::invalid) << wrong;
  EXPECT_FALSE(decode_logged_in(R"({"user":"ada"})").ok());
}

TEST(LoginWire, AnErrorHoldsNothingOfTheToken) {
  for (const char* wrong :
       {R"({"id_token":"s3cr3t","nonce":{}})", R"({"id_token":["s3cr3t"]})", R"({"id_token":"s3cr3t)"}) {
    const auto refused = decode_login(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().text().find("s3cr3t"), std::string::npos) << refused.error().text();
  }
}

}  // namespace
}  // namespace tutti::wire
