// A certificate that is not taken: by commands, and by agents that dial.
#include <signal.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <future>
#include <utility>

#include "net/http/net_test.hpp"

namespace tutti::net {
namespace {

constexpr long hour_s = 3600;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

// The same certificate with other times, from now on, signed anew.
void set_times(const Certificate& certificate, long from_s, long to_s) {
  const File key_file(std::fopen(certificate.key_file().c_str(), "r"));
  const File old_file(std::fopen(certificate.certificate_file().c_str(), "r"));
  ASSERT_TRUE(key_file && old_file);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_PrivateKey(key_file.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> made(
      PEM_read_X509(old_file.get(), nullptr, nullptr, nullptr), X509_free);
  ASSERT_TRUE(key && made);
  ASSERT_NE(X509_gmtime_adj(X509_getm_notBefore(made.get()), from_s), nullptr);
  ASSERT_NE(X509_gmtime_adj(X509_getm_notAfter(made.get()), to_s), nullptr);
  ASSERT_GT(X509_sign(made.get(), key.get(), EVP_sha256()), 0);
  const File new_file(std::fopen(certificate.certificate_file().c_str(), "w"));
  ASSERT_TRUE(new_file);
  ASSERT_EQ(PEM_write_X509(new_file.get(), made.get()), 1);
}

// It names localhost.
struct Trust : Net {
  void serve_with(const Certificate& certificate) {
    ServerOptions options;
    options.certificate_file = certificate.certificate_file();
    options.key_file = certificate.key_file();
    serve([](auto exchange) { exchange->answer({.status = 200, .body = "fine"}); }, options);
  }
  // Both ways to call it refuse alike.
  void expect_refused(const std::string& host, const std::string& ca_file, const std::string& why,
                      const std::string& advice) {
    const Target called{host, server_->port(), ca_file};
    Client client(called, "secret");
    const auto response = client.request("GET", "/");
    ASSERT_FALSE(response.ok());
    EXPECT_TRUE(client.is_untrusted());
    std::promise<Error> told;
    loop_.post([&] {
      dial(loop_, called, "/agent", "secret",
           [&](Result<std::shared_ptr<Socket>> socket) { told.set_value(socket.error()); });
    });
    for (const Error& error : {response.error(), told.get_future().get()}) {
      EXPECT_NE(error.text().find(why), std::string::npos) << error.text();
      EXPECT_NE(error.remedy().find(advice), std::string::npos) << error.remedy();
    }
  }

  const Certificate own;
};

TEST_F(Trust, WhoCallsItByItsNameAndKnowsItsAuthorityIsAnswered) {
  serve_with(own);
  Client client({"localhost", server_->port(), own.certificate_file()}, "secret");
  const auto response = client.request("GET", "/");
  ASSERT_TRUE(response.ok()) << response.error().text();
  EXPECT_EQ(response->body, "fine");
}

TEST_F(Trust, AnAuthorityThatIsNotKnownNamesWhatWouldBe) {
  const Certificate other;
  serve_with(own);
  expect_refused("localhost", other.certificate_file(),
                 "its certificate is of no authority in " + other.certificate_file(), "TUTTI_CA_FILE");
}

TEST_F(Trust, AnAddressThatTheCertificateDoesNotHaveIsNamed) {
  serve_with(own);
  expect_refused("127.0.0.1", own.certificate_file(), "its certificate does not name 127.0.0.1",
                 "a certificate that has 127.0.0.1");
}

// Such as those of nodes were, which could be called as they liked.
TEST_F(Trust, ASubjectIsNoNameOfAHost) {
  const Certificate named_by_its_subject("URI:tutti://ab12/node/localhost");
  serve_with(named_by_its_subject);
  expect_refused("localhost", named_by_its_subject.certificate_file(),
                 "its certificate does not name localhost", "a certificate that has localhost");
}

TEST_F(Trust, ACertificateThatHasExpiredSaysSo) {
  set_times(own, -2 * hour_s, -hour_s);
  serve_with(own);
  expect_refused("localhost", own.certificate_file(), "has expired by the clock of this machine", "renew");
}

TEST_F(Trust, ACertificateThatIsNotValidYetNamesTheClock) {
  set_times(own, hour_s, 2 * hour_s);
  serve_with(own);
  expect_refused("localhost", own.certificate_file(), "is not valid yet by the clock of this machine",
                 "set the clock");
}

// It runs, and is not asked: nobody is to start another one.
// What ends a process that writes where nobody reads any more is a signal, of which OpenSSL knows nothing.
TEST_F(Trust, AServerThatGoesAtOnceIsAnErrorAndEndsNobody) {
  ASSERT_EQ(::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listening, 8), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size), 0);
  constexpr int times = 20;
  std::thread server([&] {
    for (int time = 0; time < times; ++time) {
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      const int connection = ::accept(listening, nullptr, nullptr);
      ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      ::close(connection);
    }
  });
  const Certificate authority;
  for (int time = 0; time < times; ++time) {
    Client client(
        {.host = "127.0.0.1", .port = ntohs(address.sin_port), .ca_file = authority.certificate_file()}, "t");
    EXPECT_FALSE(client.request("GET", "/").ok());
  }
  server.join();
  ::close(listening);
}

TEST_F(Trust, AnAuthorityThatCannotBeReadIsNamedWithTheReason) {
  serve_with(own);
  const std::string missing = own.certificate_file() + ".missing";
  const std::string other = own.key_file();  // a key is no certificate
  for (const auto& [file, why] : {std::pair{missing, "cannot be read: No such file or directory"},
                                  std::pair{other, "there is no certificate (PEM) in it"}}) {
    const Target called{"localhost", server_->port(), file};
    const auto response = Client(called, "secret").request("GET", "/");
    ASSERT_FALSE(response.ok());
    std::promise<Error> told;
    loop_.post([&] {
      dial(loop_, called, "/agent", "secret",
           [&](Result<std::shared_ptr<Socket>> socket) { told.set_value(socket.error()); });
    });
    for (const Error& error : {response.error(), told.get_future().get()}) {
      EXPECT_NE(error.text().find("certificate authority " + file + " : " + why), std::string::npos)
          << error.text();
      EXPECT_NE(error.remedy().find("TUTTI_CA_FILE (or --ca-file) must name"), std::string::npos)
          << error.remedy();
    }
  }
}

}  // namespace
}  // namespace tutti::net
