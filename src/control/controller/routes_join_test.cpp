// Who wants to be a node: what is signed, how often, and what the audit log says of those who are refused.
#include "control/controller/signing_test.hpp"
#include "control/wire/membership.hpp"

namespace tutti::controller {
namespace {

struct JoiningTest : Signing {
  // It has joined, and shows its certificate from now on.
  struct Node {
    std::string key = *pki::make_key();
    pki::Identity identity;
  };
  Node join(const std::string& name) {
    Node node;
    std::promise<bool> stored;
    on_loop([&] {
      auto made = *registrar_.sign(name, *pki::read_request(*pki::make_request(node.key)), now_on_the_wall());
      node.identity = *pki::read_certificate(made.certificate);
      cluster::JoinToken token;
      token.id = token.hash = name;
      core_.happen(cluster::MakeJoinToken{token, 1h}, nullptr);
      core_.happen(cluster::Join{name, made.member},
                   [&stored](const auto& done) { stored.set_value(done.ok()); });
    });
    EXPECT_TRUE(stored.get_future().get());
    return node;
  }
  net::Response renew(const Node& node, const std::string& key = "") {
    wire::JoinRequest wish;
    wish.request = *pki::make_request(key.empty() ? node.key : key);
    wish.date = now_on_the_wall();
    net::Request asked = request("POST", "join/renew", wire::encode_renewal(wish));
    asked.peer = std::make_shared<const pki::Identity>(node.identity);
    return ask(std::move(asked));
  }
  bool is_good(const Node& node, Instant when) {
    bool good = false;
    on_loop([&] { good = registrar_.check(node.identity, when).ok(); });
    return good;
  }
  // What the last line of the log says.
  std::string last_line() {
    const std::string lines = log();
    const std::size_t end = lines.rfind('\n', lines.size() - 2);
    return lines.substr(end == std::string::npos ? 0 : end + 1);
  }
  void expect_line(const std::vector<std::string>& parts) {
    const std::string line = last_line();
    for (const std::string& part : parts)
      EXPECT_NE(line.find(part), std::string::npos) << part << " is not in " << line;
  }
};

// A full disk of the controller for a day would else cost every node its certificate.
TEST_F(JoiningTest, TheTimeInWhichNothingCouldBeStoredDoesNotCount) {
  const Node node = join("n1");
  const Instant late = node.identity.until + 1min;
  EXPECT_FALSE(is_good(node, late));
  store_.full = true;
  const auto refused = renew(node);
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_TRUE(is_good(node, late)) << "so that it can be renewed when the disk is well";
  EXPECT_FALSE(is_good(node, late + 1h)) << "and not for ever";
}

TEST_F(JoiningTest, ANodeThatRenewsWithoutEndIsRefused) {
  const Node node = join("n1");
  const Node other = join("n2");
  int renewed = 0;
  int status = 200;
  for (; status == 200 && renewed < 1'000; ++renewed) status = renew(node).status;
  EXPECT_EQ(status, 429);
  EXPECT_GE(renewed, renewals_at_once_max);
  EXPECT_LT(renewed, 2 * renewals_at_once_max);
  EXPECT_EQ(renew(other).status, 200) << "others do not wait for it";
}

TEST_F(JoiningTest, WhoeverConnectsWithARevokedCertificateIsInTheLog) {
  const Node node = join("n1");
  std::promise<bool> revoked;
  core_.happen(cluster::RevokeNode{"n1"}, [&](const auto& done) { revoked.set_value(done.ok()); });
  ASSERT_TRUE(revoked.get_future().get());
  net::Request asked = request("GET", "agent");
  asked.websocket = true;
  asked.peer = std::make_shared<const pki::Identity>(node.identity);
  EXPECT_EQ(ask(std::move(asked)).status, 101) << "it is told on its connection";
  expect_line({R"("verb":"connect")", R"("object":"node n1")", "was revoked", R"("from":"10.0.0.7")"});
  EXPECT_EQ(last_line().find("\"who\""), std::string::npos) << last_line();
}

TEST_F(JoiningTest, WhoeverConnectsWithoutACertificateIsInTheLog) {
  net::Request asked = request("GET", "agent");
  asked.websocket = true;
  asked.bearer = "admin";
  EXPECT_EQ(ask(std::move(asked)).status, 403);
  expect_line({R"("verb":"connect")", R"("who":"admin")", "this one shows none"});
}

TEST_F(JoiningTest, RequestsThatAreNoGoodAreInTheLog) {
  const std::string token = "tutti_join_" + std::string(64, 'a');
  ask(request("POST", "join", "{\"token\":\"" + token + "\" garbage"));
  expect_line({R"("verb":"join")", "it is not understood"});
  wire::JoinRequest wish{.token = token,
                         .name = "n1",
                         .identity = std::string(32, 'a'),
                         .request = "none",
                         .date = now_on_the_wall() + 3h};
  EXPECT_EQ(ask(request("POST", "join", wire::encode(wish))).status, 400);
  expect_line({R"("object":"node n1")", "ahead of that of the controller"});
  wish.date = now_on_the_wall();
  EXPECT_EQ(ask(request("POST", "join", wire::encode(wish))).status, 400);
  expect_line({R"("object":"node n1")", R"("refused":)"});
  const Node node = join("n2");
  EXPECT_EQ(renew(node, *pki::make_key()).status, 403);
  expect_line({R"("verb":"renew")", R"("object":"node n2")", "for another key"});
  EXPECT_EQ(log().find("aaaaaaaa"), std::string::npos) << "no token is in it: " << log();
}

}  // namespace
}  // namespace tutti::controller
