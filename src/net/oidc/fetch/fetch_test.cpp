#include "net/oidc/fetch/fetch.hpp"

#include <atomic>

#include "net/http/net_test.hpp"
#include "net/oidc/fake/fake_issuer.hpp"
#include "net/oidc/fake/signing_key.hpp"

namespace tutti::oidc {
namespace {

void expect_failed(const Error& error, const std::string& word) {
  EXPECT_EQ(error.code(), ErrorCode::failed);
  EXPECT_NE((error.text() + error.remedy()).find(word), std::string::npos) << error.text() << error.remedy();
}

TEST(Fetch, AnIssuerIsAskedForItsKeys) {
  FakeIssuer issuer;
  issuer.set_keys(jwks_of(SigningKey::p256("one").jwk()));
  const auto provider = discover(issuer.url(), {});
  ASSERT_TRUE(provider.ok()) << provider.error().text();
  const auto keys = fetch_keys(*provider, {});
  ASSERT_TRUE(keys.ok()) << keys.error().text();
  EXPECT_TRUE(keys->knows("one"));
}

TEST(Fetch, ItsCertificateIsVerified) {
  const net::Certificate own;
  const net::Certificate other;
  FakeIssuer issuer(own.certificate_file(), own.key_file());
  const auto known = discover(issuer.url(), {.ca_file = own.certificate_file()});
  EXPECT_TRUE(known.ok()) << known.error().text();
  for (const std::string& authority : {other.certificate_file(), std::string()}) {
    const auto refused = discover(issuer.url(), {.ca_file = authority});
    ASSERT_FALSE(refused.ok()) << "by '" << authority << "'";
    expect_failed(refused.error(), "its certificate is of no authority");
    expect_failed(refused.error(), "--oidc-ca");
  }
  std::string by_address = issuer.url();
  by_address.replace(by_address.find("localhost"), 9, "127.0.0.1");
  const auto misnamed = discover(by_address, {.ca_file = own.certificate_file()});
  ASSERT_FALSE(misnamed.ok());
  expect_failed(misnamed.error(), "does not name 127.0.0.1");
}

TEST(Fetch, NobodyIsFollowedElsewhere) {
  FakeIssuer issuer;
  issuer.on("/moved", [&](const net::Request&) {
    return net::Response{.status = 302, .headers = {{"Location", issuer.url() + "/keys"}}};
  });
  const auto refused = fetch(issuer.url() + "/moved", 1000, {});
  ASSERT_FALSE(refused.ok());
  expect_failed(refused.error(), "that is not followed");
  EXPECT_EQ(issuer.asked("/keys"), 0);
}

TEST(Fetch, AnAnswerHasABound) {
  FakeIssuer issuer;
  issuer.say("/large", std::string(1001, 'x'));
  const auto refused = fetch(issuer.url() + "/large", 1000, {});
  ASSERT_FALSE(refused.ok());
  expect_failed(refused.error(), "longer than");
  issuer.set_keys(std::string(jwks_bytes_max + 1, ' '));
  EXPECT_FALSE(fetch_keys(*discover(issuer.url(), {}), {}).ok());
}

TEST(Fetch, OtherAnswersAreErrorsThatNameThePage) {
  FakeIssuer issuer;
  const auto missing = fetch(issuer.url() + "/missing", 1000, {});
  ASSERT_FALSE(missing.ok());
  expect_failed(missing.error(), "/missing : it answers with HTTP status 404");
  issuer.set_keys("nothing");
  const auto no_keys = fetch_keys(*discover(issuer.url(), {}), {});
  ASSERT_FALSE(no_keys.ok());
  expect_failed(no_keys.error(), "/keys");
}

TEST(Fetch, AFormIsSentAsOneAndItsRefusalIsAnAnswer) {
  FakeIssuer issuer;
  std::string type;
  std::string body;
  std::mutex mutex;
  issuer.on("/token", [&](const net::Request& request) {
    const std::lock_guard lock(mutex);
    body = request.body;
    type = request.headers.at("content-type");
    return net::Response{.status = 400, .body = R"({"error":"slow_down"})"};
  });
  const auto answer = post_form(issuer.url() + "/token", {{"a", "1 2"}, {"b", "&="}}, {});
  ASSERT_TRUE(answer.ok()) << answer.error().text();
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->body, R"({"error":"slow_down"})");
  const std::lock_guard lock(mutex);
  EXPECT_EQ(body, "a=1%202&b=%26%3D");
  EXPECT_EQ(type, "application/x-www-form-urlencoded");
}

TEST(Fetch, WhoIsNotWaitedForAnyMoreIsLeft) {
  const int silent = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(silent, 1), 0);
  ASSERT_EQ(::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::atomic<int> asked = 0;
  const Reach reach{.ca_file = "", .given_up = [&] { return ++asked > 2; }};
  EXPECT_FALSE(fetch("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), 1000, reach).ok());
  EXPECT_EQ(asked, 3);
  ::close(silent);
}

TEST(Fetch, NothingIsSaidInTheClear) {
  const auto refused = fetch("http://issuer.example/keys", 1000, {});
  ASSERT_FALSE(refused.ok());
  expect_failed(refused.error(), "plain http");
}

}  // namespace
}  // namespace tutti::oidc
