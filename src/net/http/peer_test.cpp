// Both sides of TLS with a certificate: who is told to the handler, and who is not let in.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "net/http/net_test.hpp"
#include "net/pki/pki.hpp"

namespace tutti::net {
namespace {

Instant date() {
  return Instant(std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()));
}

std::string sign(const pki::Authority& by, const std::string& key, pki::Subject subject, Instant when) {
  auto public_key = pki::read_request(*pki::make_request(key));
  return *pki::sign(by, *public_key, subject, {.now = when});
}

class Peers : public Net {
 protected:
  Peers() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-peer-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    write("ca.pem", authority_.certificate);
    write("node.key", key_);
  }
  ~Peers() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  ServerIdentity identity(const pki::Authority& by) const {
    const std::string key = *pki::make_key();
    const std::string own = sign(
        by, key, {.name = {.cluster = "ab12", .role = pki::Role::controller}, .addresses = {"127.0.0.1"}},
        date());
    return {own + by.certificate, key, by.certificate};
  }
  // Answers with the name of whoever asks.
  void serve_names() {
    ServerOptions options;
    options.identity = identity(authority_);
    serve(
        [this](const std::shared_ptr<Exchange>& exchange) {
          ++requests_;
          const auto& peer = exchange->request().peer;
          exchange->answer(
              {.status = 200,
               .body = peer ? pki::to_uri(peer->name) + " " + peer->serial : std::string("nobody")});
        },
        options);
  }
  std::string certificate(const pki::Authority& by, Instant when = date()) const {
    return sign(by, key_, {.name = {.cluster = "ab12", .node = "n1"}}, when);
  }
  Target node(const std::string& text) const {
    Target to = target();
    to.ca_file = folder_ + "/ca.pem";
    if (text.empty()) return to;
    to.certificate_file = write("node.pem", text);
    to.key_file = folder_ + "/node.key";
    return to;
  }
  static Result<Response> ask(const Target& target) { return Client(target, "").request("GET", "/"); }

  const pki::Authority authority_ = *pki::make_authority("ab12", date());
  const std::string key_ = *pki::make_key();
  std::string folder_;
  std::atomic<int> requests_ = 0;
};

TEST_F(Peers, TheHandlerIsToldWhoHasShownACertificate) {
  serve_names();
  const std::string text = certificate(authority_);
  const auto answer = ask(node(text));
  ASSERT_TRUE(answer.ok()) << answer.error().text();
  EXPECT_EQ(answer->body, "tutti://ab12/node/n1 " + pki::read_certificate(text)->serial);
}

TEST_F(Peers, WhoeverHasNoneComesInToo) {
  serve_names();
  const auto answer = ask(node(""));
  ASSERT_TRUE(answer.ok()) << answer.error().text();
  EXPECT_EQ(answer->body, "nobody");
}

// Whoever may join chooses what he is called: also as the controller is.
TEST_F(Peers, ANodeThatIsCalledAsTheHostIsNotTheController) {
  const std::string key = *pki::make_key();
  const std::string text = sign(authority_, key, {.name = {.cluster = "ab12", .node = "localhost"}}, date());
  ServerOptions options;
  options.identity = ServerIdentity{text + authority_.certificate, key, ""};
  serve(
      [this](const std::shared_ptr<Exchange>& exchange) {
        ++requests_;
        exchange->answer({.status = 200, .body = ""});
      },
      options);
  Target to = node("");
  to.host = "localhost";
  Client client(to, "");
  EXPECT_FALSE(client.request("GET", "/").ok());
  EXPECT_TRUE(client.is_untrusted());
  std::promise<bool> dialled;
  loop_.post([&] {
    dial(loop_, to, "/", "", [&](Result<std::shared_ptr<Socket>> socket) { dialled.set_value(socket.ok()); });
  });
  EXPECT_FALSE(dialled.get_future().get());
  EXPECT_EQ(requests_, 0);
}

TEST_F(Peers, OneOfAnotherAuthorityIsRefused) {
  serve_names();
  const auto other = *pki::make_authority("ab12", date());
  EXPECT_FALSE(ask(node(certificate(other))).ok());
  EXPECT_EQ(requests_, 0);
}

// The handler judges the date: it can say what to do.
TEST_F(Peers, OneThatHasExpiredIsToldToTheHandler) {
  serve_names();
  const auto answer = ask(node(certificate(authority_, date() - 48h)));
  ASSERT_TRUE(answer.ok()) << answer.error().text();
  EXPECT_TRUE(answer->body.starts_with("tutti://ab12/node/n1"));
}

TEST_F(Peers, ACertificateWithoutItsKeyIsOfNoUse) {
  serve_names();
  const Target to = node(certificate(authority_));
  write("node.key", *pki::make_key());
  const auto answer = ask(to);
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message().find("do not belong together"), std::string::npos)
      << answer.error().text();
}

TEST_F(Peers, NewConnectionsSeeTheNewCertificateAndOpenOnesLiveOn) {
  serve_names();
  Client open(node(""), "");
  ASSERT_TRUE(open.request("GET", "/").ok());
  const auto other = *pki::make_authority("ab12", date());
  std::promise<bool> used;
  loop_.post([&] { used.set_value(server_->use(identity(other)).ok()); });
  ASSERT_TRUE(used.get_future().get());
  EXPECT_TRUE(open.request("GET", "/").ok());
  EXPECT_FALSE(ask(node("")).ok());
  write("ca.pem", other.certificate);
  EXPECT_EQ(ask(node(certificate(other)))->body.substr(0, 20), "tutti://ab12/node/n1");
}

TEST_F(Peers, WhatCannotBeUsedChangesNothing) {
  serve_names();
  std::promise<std::string> why;
  loop_.post([&] {
    ServerIdentity wrong = identity(authority_);
    wrong.key = *pki::make_key();
    why.set_value(server_->use(wrong).error().text());
  });
  EXPECT_NE(why.get_future().get(), "");
  EXPECT_TRUE(ask(node("")).ok());
}

// People know an authority of somebody else's, and nodes that of their cluster.
TEST_F(Peers, WhoeverWantsTheClustersCertificateSeesThatInPlaceOfTheOther) {
  const auto other = *pki::make_authority("cd34", date());
  const ServerIdentity own = identity(authority_);
  const ServerIdentity of_others = identity(other);
  ServerOptions options;
  options.identity = ServerIdentity{of_others.certificates, of_others.key, authority_.certificate,
                                    own.certificates, own.key};
  serve(
      [](const std::shared_ptr<Exchange>& exchange) {
        const auto& peer = exchange->request().peer;
        exchange->answer({.status = 200, .body = peer ? pki::to_uri(peer->name) : std::string("nobody")});
      },
      options);
  Target person = target();
  person.ca_file = write("other.pem", other.certificate);
  const auto seen_by_person = ask(person);
  ASSERT_TRUE(seen_by_person.ok()) << seen_by_person.error().text();
  EXPECT_EQ(seen_by_person->body, "nobody");
  Target node_of_it = node(certificate(authority_));
  EXPECT_FALSE(ask(node_of_it).ok()) << "it has not said what it wants";
  node_of_it.wants_cluster = true;
  const auto seen_by_node = ask(node_of_it);
  ASSERT_TRUE(seen_by_node.ok()) << seen_by_node.error().text();
  EXPECT_EQ(seen_by_node->body, "tutti://ab12/node/n1");
  const auto fingerprint_seen = [](const Target& by) {
    return *pki::fingerprint(shown_certificates(by)->back());
  };
  EXPECT_EQ(fingerprint_seen(person), *pki::fingerprint(other.certificate));
  EXPECT_EQ(fingerprint_seen(node_of_it), *pki::fingerprint(authority_.certificate));
  // It is told that this is no WebSocket, over TLS that has worked.
  std::promise<Error> told;
  loop_.post([&] {
    dial(loop_, node_of_it, "/", "",
         [&](Result<std::shared_ptr<Socket>> socket) { told.set_value(socket.error()); });
  });
  const Error why = told.get_future().get();
  EXPECT_EQ(why.text().find("authority"), std::string::npos) << why.text();
}

TEST_F(Peers, WhatAServerShowsIsSeenBeforeAnythingIsSent) {
  serve_names();
  const auto shown = shown_certificates(target());
  ASSERT_TRUE(shown.ok()) << shown.error().text();
  ASSERT_EQ(shown->size(), 2u);
  EXPECT_EQ(*pki::fingerprint((*shown)[1]), *pki::fingerprint(authority_.certificate));
  EXPECT_EQ(requests_, 0);
}

TEST_F(Peers, OneThatSpeaksNoTlsShowsNothing) {
  serve([](const std::shared_ptr<Exchange>& exchange) { exchange->answer({.status = 200, .body = ""}); });
  const auto shown = shown_certificates(target());
  ASSERT_FALSE(shown.ok());
  EXPECT_NE(shown.error().remedy().find("TLS"), std::string::npos);
}

TEST_F(Peers, AnAgentOfAnotherAuthorityHearsWhatToDo) {
  serve_names();
  const auto other = *pki::make_authority("ab12", date());
  std::promise<std::string> remedy;
  dial(loop_, node(certificate(other)), "/", "", [&](Result<std::shared_ptr<Socket>> socket) {
    remedy.set_value(socket ? "" : socket.error().remedy());
  });
  EXPECT_NE(remedy.get_future().get().find("tutti agent join"), std::string::npos);
}

}  // namespace
}  // namespace tutti::net
