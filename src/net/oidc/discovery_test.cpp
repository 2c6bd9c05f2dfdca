#include "net/oidc/discovery.hpp"

#include <gtest/gtest.h>

namespace tutti::oidc {
namespace {

constexpr const char* the_issuer = "https://issuer.example/realms/a";

std::string settings_with(const std::string& more, const std::string& who = the_issuer) {
  return R"({"issuer":")" + who +
         R"(","jwks_uri":"https://keys.example/k","token_endpoint":"https://issuer.example/t")" + more + "}";
}

TEST(Discovery, WhatAnIssuerSaysOfItself) {
  const auto provider = parse_discovery(
      settings_with(
          R"(,"authorization_endpoint":"https://issuer.example/a","device_authorization_endpoint":)"
          R"("https://issuer.example/d","code_challenge_methods_supported":["plain","S256"],"other":[1])"),
      the_issuer);
  ASSERT_TRUE(provider.ok()) << provider.error().text();
  EXPECT_EQ(provider->keys_url, "https://keys.example/k");
  EXPECT_EQ(provider->token_url, "https://issuer.example/t");
  EXPECT_EQ(provider->authorization_url, "https://issuer.example/a");
  EXPECT_EQ(provider->device_url, "https://issuer.example/d");
  EXPECT_EQ(discovery_url(the_issuer), std::string(the_issuer) + "/.well-known/openid-configuration");
  EXPECT_EQ(discovery_url("https://a/"), "https://a/.well-known/openid-configuration");
}

TEST(Discovery, OfAnotherIssuerItIsRefused) {
  for (const std::string& other :
       {std::string(the_issuer) + "/", std::string("https://evil.example"), std::string()}) {
    const auto refused = parse_discovery(settings_with("", other), the_issuer);
    ASSERT_FALSE(refused.ok()) << other;
    EXPECT_NE(refused.error().text().find("it is of the issuer"), std::string::npos)
        << refused.error().text();
  }
  std::string nobody = settings_with("");
  nobody.erase(1, nobody.find("\"jwks_uri") - 1);
  EXPECT_FALSE(parse_discovery(nobody, the_issuer).ok());
}

TEST(Discovery, PagesThatCouldBeReadOnTheWayAreRefused) {
  for (const char* page : {"authorization_endpoint", "device_authorization_endpoint"}) {
    const auto refused = parse_discovery(
        settings_with(R"(,")" + std::string(page) + R"(":"http://issuer.example/x")"), the_issuer);
    ASSERT_FALSE(refused.ok()) << page;
    EXPECT_NE(refused.error().text().find(page), std::string::npos) << refused.error().text();
  }
}

TEST(Discovery, ABrowserThatCannotProveItsCodeIsNotSentThere) {
  const auto provider =
      parse_discovery(settings_with(R"(,"authorization_endpoint":"https://issuer.example/a",)"
                                    R"("code_challenge_methods_supported":["plain"])"),
                      the_issuer);
  ASSERT_TRUE(provider.ok());
  EXPECT_EQ(provider->authorization_url, "");
}

TEST(Discovery, WhatIsNoneIsRefused) {
  for (const std::string& wrong :
       {std::string(), std::string("[]"), std::string("{}"), settings_with(R"(,"issuer":"x")"),
        R"({"issuer":")" + std::string(the_issuer) + R"("})", std::string(discovery_bytes_max + 1, ' ')})
    EXPECT_FALSE(parse_discovery(wrong, the_issuer).ok()) << wrong.substr(0, 100);
}

}  // namespace
}  // namespace tutti::oidc
