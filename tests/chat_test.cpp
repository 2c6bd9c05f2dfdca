// `tutti chat` with a server that is not tutti's: what it asks, and what stays of what was said.
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "net/http/server.hpp"
#include "support/process.hpp"

namespace tutti {
namespace {

using Json = nlohmann::json;
using support::has;

// Answers below /proxy, with the events of somebody else; who says "wait" hears nothing for ever. Below
// /proxy/closed it wants a key.
class ForeignServer {
 public:
  explicit ForeignServer(const net::ServerOptions& options = {}) {
    auto server = net::Server::listen(
        loop_, options, [this](const std::shared_ptr<net::Exchange>& exchange) { hear(*exchange); });
    EXPECT_TRUE(server) << server.error().text();
    server_ = std::move(*server);
    thread_ = std::thread([this] { loop_.run(); });
  }
  ForeignServer(const ForeignServer&) = delete;
  ForeignServer& operator=(const ForeignServer&) = delete;
  ~ForeignServer() {
    loop_.stop();
    thread_.join();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()) + "/proxy"; }
  std::string url() const { return "http://" + address() + "/v1"; }
  // The bodies of all questions.
  std::vector<Json> asked() {
    const std::scoped_lock lock(mutex_);
    return asked_;
  }

 private:
  void hear(net::Exchange& exchange) {
    const net::Request& request = exchange.request();
    if (request.path.starts_with("/proxy/closed") && request.bearer != "sk-short")
      return exchange.answer({.status = 401, .body = R"({"error":"who are you"})"});
    if (request.path == "/proxy/v1/models" || request.path == "/proxy/closed/v1/models")
      return exchange.answer({.body = R"({"data":[{"id":"first"},{"id":"second"}]})"});
    if (request.path != "/proxy/v1/chat/completions")
      return exchange.answer({.status = 404, .body = R"({"error":"no such page"})"});
    const Json body = Json::parse(request.body, nullptr, false);
    auto stream = exchange.stream(nullptr);
    if (body["messages"].back()["content"] == "wait") {
      waiting_.push_back(std::move(stream));
    } else {
      stream->write("data:{\"choices\":[{\"delta\":{\"content\":\"well\"}}]}\r\n\r\ndata:[DONE]\r\n\r\n");
      stream->close();
    }
    const std::scoped_lock lock(mutex_);
    asked_.push_back(body);
  }

  net::Loop loop_;
  std::unique_ptr<net::Server> server_;
  std::vector<std::shared_ptr<net::Stream>> waiting_;  // the loop's
  std::mutex mutex_;
  std::vector<Json> asked_;
  std::thread thread_;
};

Json said_by(const std::string& role, const std::string& text) { return {{"role", role}, {"content", text}}; }

TEST(Chat, WithAnyServerBelowItsPathAndWithTheModelThatIsNamed) {
  ForeignServer server;
  const auto talk = [&](const std::string& flags) {
    return support::run(
        {"sh", "-c",
         "printf 'hello\\nagain\\n' | '" + support::tutti_program + "' chat '" + server.url() + "'" + flags});
  };
  const auto first = talk("");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out, "well\nwell\n");
  const auto second = talk(" --model second");
  EXPECT_EQ(second.exit_code, 0) << second.err;
  const auto asked = server.asked();
  ASSERT_EQ(asked.size(), 4U);
  EXPECT_EQ(asked[0]["model"], "first");
  EXPECT_EQ(asked[3]["model"], "second");
  EXPECT_EQ(asked[3]["messages"],
            Json({said_by("user", "hello"), said_by("assistant", "well"), said_by("user", "again")}));
}

TEST(Chat, AModelOfAServerIsNotChosenOfAFolder) {
  const auto refused = support::run({support::tutti_program, "chat", "/tmp", "--model", "x"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "--model")) << refused.err;
}

TEST(Chat, AServerThatWantsAKeyIsGivenItHoweverShortItIs) {
  const ForeignServer server;
  const support::TempFolder folder;
  const std::string key = folder.path() + "/key";
  support::write_text(key, "sk-short\n");
  ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
  const auto talk = [&](const std::string& flags) {
    return support::run({"sh", "-c",
                         "printf '%s\\n' \"$0\" | '" + support::tutti_program + "' chat http://" +
                             server.address() + "/closed" + flags,
                         flags.find("--model") == std::string::npos ? "" : "hello"});
  };
  EXPECT_EQ(talk(" --key-file '" + key + "'").exit_code, 0);
  for (const char* const flags : {"", " --model first"}) {
    const auto refused = talk(flags);
    EXPECT_EQ(refused.exit_code, 1) << flags;
    EXPECT_TRUE(has(refused.err, "who are you")) << refused.err;
    EXPECT_TRUE(has(refused.err, "--key-file")) << refused.err;
  }
}

TEST(Chat, ACertificateThatIsNotTrustedNamesWhatWouldBe) {
  const support::TempFolder folder;
  net::ServerOptions options;
  options.key_file = folder.path() + "/key.pem";
  options.certificate_file = folder.path() + "/certificate.pem";
  const auto made = support::run({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                                  "-subj", "/CN=tutti", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                                  options.key_file, "-out", options.certificate_file});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const ForeignServer server(options);
  const std::string chat =
      "'" + support::tutti_program + "' chat https://" + server.address() + " </dev/null --ca-file ";
  // Read, and without the one that has signed it.
  const std::string other = folder.path() + "/other.pem";
  ASSERT_EQ(support::run({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                          "/CN=other", "-keyout", folder.path() + "/other-key.pem", "-out", other})
                .exit_code,
            0);
  const auto untrusted = support::run({"sh", "-c", chat + other});
  EXPECT_EQ(untrusted.exit_code, 1) << untrusted.err;
  EXPECT_TRUE(has(untrusted.err, "--ca-file")) << untrusted.err;
  EXPECT_FALSE(has(untrusted.err, "tutti engine MODEL")) << untrusted.err;
  EXPECT_EQ(support::run({"sh", "-c", chat + options.certificate_file}).exit_code, 0);
}

// Ctrl-C before the first word of an answer: there was none, and so what was said is taken back.
TEST(Chat, WhatWasStoppedBeforeItsAnswerIsForgotten) {
  ForeignServer server;
  int terminal = -1;
  const std::string url = server.url();
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execl(support::tutti_program.c_str(), "tutti", "chat", url.c_str(), nullptr);
    ::_exit(127);
  }
  std::string seen;
  const auto read_until = [&](const std::function<bool()>& enough) {
    char buffer[4096];
    for (ssize_t got = 0; !enough() && (got = ::read(terminal, buffer, sizeof buffer)) > 0;)
      seen.append(buffer, static_cast<std::size_t>(got));
  };
  const auto type = [&](const std::string& text) {
    EXPECT_EQ(::write(terminal, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  read_until([&] { return seen.ends_with("> "); });
  const std::size_t before = seen.size();
  type("wait\n");
  EXPECT_TRUE(support::eventually([&] { return server.asked().size() == 1; }));
  type("\x03");
  read_until([&] { return seen.size() > before && seen.ends_with("\n> "); });
  type("hello\n");
  read_until([&] { return has(seen, "well"); });
  read_until([&] { return seen.ends_with("\n> "); });
  type("\x04");
  read_until([] { return false; });
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ::close(terminal);
  const auto asked = server.asked();
  ASSERT_EQ(asked.size(), 2U) << seen;
  EXPECT_EQ(asked[1]["messages"], Json::array({said_by("user", "hello")}));
}

}  // namespace
}  // namespace tutti
