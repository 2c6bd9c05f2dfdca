#include "net/oidc/url.hpp"

#include <gtest/gtest.h>

#include "net/oidc/base64url.hpp"

namespace tutti::oidc {
namespace {

TEST(Url, AnAddressIsTakenApart) {
  const auto url = parse_url("https://issuer.example/realms/a?x=1");
  ASSERT_TRUE(url.ok());
  EXPECT_TRUE(url->is_secure);
  EXPECT_EQ(url->host, "issuer.example");
  EXPECT_EQ(url->port, 443);
  EXPECT_EQ(url->path, "/realms/a?x=1");
  EXPECT_EQ(parse_url("https://issuer.example:8443")->port, 8443);
  EXPECT_EQ(parse_url("https://issuer.example?x")->path, "/?x");
  EXPECT_EQ(parse_url("https://[2001:db8::1]:9/x")->host, "2001:db8::1");
}

TEST(Url, PlainHttpIsForThisMachineAlone) {
  for (const char* here :
       {"http://127.0.0.1:80/x", "http://localhost", "http://[::1]:1/", "http://127.9.9.9"})
    EXPECT_TRUE(parse_url(here).ok()) << here;
  for (const char* there : {"http://issuer.example", "http://127.0.0.1.evil.example", "http://127.evil",
                            "http://10.0.0.1", "http://localhost.evil", "http://[::2]/"})
    EXPECT_FALSE(parse_url(there).ok()) << there;
}

TEST(Url, WhatIsNoPlainAddressIsRefused) {
  for (const std::string& wrong :
       {std::string(), std::string("issuer.example"), std::string("ftp://issuer.example"),
        std::string("https://"), std::string("https:///x"), std::string("https://a@issuer.example/"),
        std::string("https://issuer.example@evil"), std::string("https://issuer.example/#x"),
        std::string("https://issuer.example/a b"), std::string("https://issuer.example/\r\nX: y"),
        std::string("https://issuer.example/\x1b[0m"), std::string("https://issuer.example:0"),
        std::string("https://issuer.example:65536"), std::string("https://issuer.example:x"),
        std::string("https://issuer.example:"), std::string("https://[::1"), std::string("https://[x]/"),
        std::string("https://iss\xC3\xBC/"), "https://issuer.example/" + std::string(url_bytes_max, 'a')})
    EXPECT_FALSE(parse_url(wrong).ok()) << wrong;
  EXPECT_FALSE(parse_issuer("https://issuer.example/?x").ok());
  EXPECT_TRUE(parse_issuer("https://issuer.example/x").ok());
}

TEST(Url, FormsAreWrittenSoThatTheyAreReadBack) {
  EXPECT_EQ(form_text({{"a", "x y&z=\xC3\xBC"}, {"b", ""}}), "a=x%20y%26z%3D%C3%BC&b=");
  EXPECT_EQ(with_query("https://a/b", {{"x", "1"}}), "https://a/b?x=1");
  EXPECT_EQ(with_query("https://a/b?y=2", {{"x", "1"}}), "https://a/b?y=2&x=1");
}

TEST(Base64Url, EachTextStandsForOtherBytes) {
  for (const std::string& bytes : {std::string(), std::string("f"), std::string("fo"), std::string("foo"),
                                   std::string("foob"), std::string("\0\xff\xfe", 3)})
    EXPECT_EQ(from_base64url(to_base64url(bytes)), bytes);
  EXPECT_EQ(to_base64url("\xfb\xff"), "-_8");
  for (const char* wrong : {"A", "AAAAA", "Zg==", "Zg=", "Zh", "Zm9=", "+/8", "Zm 9", "Zm9v\n", "Z\xC3\xA4"})
    EXPECT_FALSE(from_base64url(wrong)) << wrong;
}

}  // namespace
}  // namespace tutti::oidc
