// A server that joins, and what it takes from whoever answers as the controller.
#include "node/agent/papers.hpp"

#include <atomic>
#include <filesystem>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "control/wire/membership.hpp"
#include "net/http/server.hpp"

namespace tutti::agent {
namespace {

// Its controller signs whatever is asked for, by the authority that it is told to.
class PapersTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-papers-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    const std::string key = *pki::make_key();
    const std::string own =
        *pki::sign(authority_, *pki::read_request(*pki::make_request(key)),
                   {.name = {.cluster = "ab12", .role = pki::Role::controller}, .addresses = {"127.0.0.1"}},
                   {.now = now_on_the_wall()});
    net::ServerOptions options;
    options.identity = net::ServerIdentity{own + authority_.certificate, key, authority_.certificate};
    auto listening = net::Server::listen(
        loop_, options, [this](const std::shared_ptr<net::Exchange>& exchange) { give(*exchange); });
    ASSERT_TRUE(listening.ok()) << listening.error().text();
    server_ = std::move(*listening);
    thread_ = std::thread([this] { loop_.run(); });
  }
  void TearDown() override {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    std::filesystem::remove_all(folder_);
  }

  void give(net::Exchange& exchange) const {
    const std::string& body = exchange.request().body;
    const auto asked =
        exchange.request().parts.back() == "renew" ? wire::decode_renewal(body) : wire::decode_join(body);
    const auto certificate =
        pki::sign(*signs_.load(), *pki::read_request(asked->request),
                  {.name = {.cluster = "ab12", .node = "n1"}}, {.now = now_on_the_wall()});
    exchange.answer(
        {.status = 200, .body = wire::encode(wire::JoinReply{"n1", *certificate, authority_.certificate})});
  }
  Result<std::string> join() const {
    return agent::join({.controller = {"127.0.0.1", server_->port(), ""},
                        .token = "tutti_join_1",
                        .authority = *pki::fingerprint(authority_.certificate),
                        .name = "n1",
                        .folder = folder_});
  }
  std::string certificate() const {
    return files::read_file(folder_ + "/node.pem", pki::certificates_bytes_max)->value_or("");
  }

  const pki::Authority authority_ = *pki::make_authority("ab12", now_on_the_wall());
  const pki::Authority other_ = *pki::make_authority("ab12", now_on_the_wall());
  std::atomic<const pki::Authority*> signs_ = &authority_;
  std::string folder_;
  net::Loop loop_;
  std::unique_ptr<net::Server> server_;
  std::thread thread_;
};

TEST_F(PapersTest, AServerThatJoinsStoresWhatItIsGivenAndRenewsIt) {
  const auto name = join();
  ASSERT_TRUE(name.ok()) << name.error().text();
  EXPECT_EQ(*name, "n1");
  const std::string first = certificate();
  const auto target = target_with_papers(folder_, "");
  ASSERT_TRUE(target.ok()) << target.error().text();
  const auto renewed = renew_papers(*target, folder_);
  ASSERT_TRUE(renewed.ok()) << renewed.error().text();
  EXPECT_NE(certificate(), first);
}

// It would be shown to a controller that does not take it, in place of one that it takes.
TEST_F(PapersTest, ACertificateThatNoneOfTheAuthoritiesHasSignedIsNotStored) {
  signs_ = &other_;
  const auto refused = join();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("none of the authorities has signed it"), std::string::npos)
      << refused.error().text();
  EXPECT_EQ(certificate(), "");
  signs_ = &authority_;
  ASSERT_TRUE(join().ok());
  const std::string good = certificate();
  signs_ = &other_;
  EXPECT_FALSE(renew_papers(*target_with_papers(folder_, ""), folder_).ok());
  EXPECT_EQ(certificate(), good);
}

// Its folder was restored from a copy that is older than the authority that has signed ours; the one of --ca
// is in both.
TEST_F(PapersTest, WhoseCertificateTheControllersTlsRefusesJoinsAnew) {
  ASSERT_TRUE(join().ok());
  const std::string key = files::read_file(folder_ + "/node.key", 64 << 10)->value_or("");
  const std::string unknown =
      *pki::sign(other_, *pki::read_request(*pki::make_request(key)),
                 {.name = {.cluster = "ab12", .node = "n1"}}, {.now = now_on_the_wall()});
  ASSERT_TRUE(files::replace_file(folder_ + "/node.pem", unknown, {}).ok());
  const auto refused = renew_papers(*target_with_papers(folder_, ""), folder_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid) << refused.error().text();
  EXPECT_NE(refused.error().remedy().find("tutti agent join"), std::string::npos) << refused.error().text();
  signs_ = &other_;
  EXPECT_FALSE(join().ok());
  EXPECT_EQ(certificate(), unknown) << "what there is stays until there is something better";
  signs_ = &authority_;
  ASSERT_TRUE(join().ok());
  EXPECT_TRUE(pki::check_signer(certificate(), authority_.certificate).ok());
}

}  // namespace
}  // namespace tutti::agent
