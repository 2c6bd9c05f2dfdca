// `tutti chat` with a server that is not tutti's: what it asks, and what stays of what was said.
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
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

const char* const one_piece = "data:{\"choices\":[{\"delta\":{\"content\":\"well\"}}]}\r\n\r\n";

// What it says to a word, and whether it ends then; to any other word it says "well".
struct Habit {
  std::string says;
  bool ends = true;
};
const std::map<std::string, Habit> habits{
    {"wait", {"", false}},
    {"stall", {one_piece, false}},
    {"nothing", {""}},
    {"half", {one_piece}},
    {"quietly",
     {one_piece + std::string("data:{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n")}},
    {"failing", {one_piece + std::string("data:{\"error\":{\"message\":\"no \\u001b[2Jmemory\"}}\n\n")}},
    {"garbage", {one_piece + std::string("data:<html>\x1b[2J\n\n")}}};

// Answers below /proxy, with the events of somebody else. Below /proxy/closed it wants a key.
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
    const auto habit = habits.find(body["messages"].back()["content"].get<std::string>());
    stream->write(habit == habits.end() ? one_piece + std::string("data:[DONE]\r\n\r\n")
                                        : habit->second.says);
    if (habit == habits.end() || habit->second.ends) {
      stream->close();
    } else {
      waiting_.push_back(std::move(stream));
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

// What came is shown, and that it is not all of it is said.
TEST(Chat, AnAnswerThatIsNotWholeSaysSo) {
  const ForeignServer server;
  const auto talk = [&](const std::string& lines) {
    return support::run({"sh", "-c",
                         "printf '" + lines + "\\n' | '" + support::tutti_program + "' chat '" +
                             server.url() + "' --patience 100ms"});
  };
  const auto whole = talk("quietly\\nhello");
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(whole.out, "well\nwell\n") << "it has said that this is the end";
  EXPECT_EQ(whole.err, "");
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"half", "the answer was cut off\n"},
           {"stall", "the answer was cut off: nothing has come for 100ms; --patience"},
           {"failing", "the answer was cut off: no \\x1b[2Jmemory"},
           {"garbage", "the answer was cut off: it sent what is no part of an answer: <html>\\x1b[2J"}}) {
    const auto cut = talk(line + "\\nhello");
    EXPECT_EQ(cut.exit_code, 1) << line;
    EXPECT_EQ(cut.out, "well\n") << line << ": what came is kept, and nothing is said to half an answer";
    EXPECT_TRUE(has(cut.err, "tutti: " + why)) << cut.err;
  }
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"nothing", "there was no answer"}, {"wait", "nothing has come for 100ms"}}) {
    const auto none = talk(line);
    EXPECT_EQ(none.exit_code, 1) << line;
    EXPECT_EQ(none.out, "") << line;
    EXPECT_TRUE(has(none.err, why)) << none.err;
  }
}

TEST(Chat, WhatCannotBeWrittenEndsIt) {
  ForeignServer server;
  const auto full = support::run(
      {"sh", "-c", "yes hello | '" + support::tutti_program + "' chat '" + server.url() + "' >/dev/full"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.err, "tutti: standard output : cannot be written: No space left on device\n");
  EXPECT_EQ(server.asked().size(), 1U) << "nobody sees the answers";
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

// A conversation as a person has it.
class TerminalChat {
 public:
  explicit TerminalChat(const std::string& url) {
    child_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (child_ != 0) return;
    ::execl(support::tutti_program.c_str(), "tutti", "chat", url.c_str(), nullptr);
    ::_exit(127);
  }
  TerminalChat(const TerminalChat&) = delete;
  TerminalChat& operator=(const TerminalChat&) = delete;
  ~TerminalChat() { ::close(terminal_); }

  void type(const std::string& text) const {
    EXPECT_EQ(::write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // What has come since the last time, up to here.
  std::string read_until(const std::string& end) {
    std::string seen;
    char buffer[4096];
    for (ssize_t got = 0; !seen.ends_with(end) && (got = ::read(terminal_, buffer, sizeof buffer)) > 0;)
      seen.append(buffer, static_cast<std::size_t>(got));
    return seen;
  }
  // Ctrl-D; the status of the program.
  int leave() {
    type("\x04");
    char buffer[4096];
    while (::read(terminal_, buffer, sizeof buffer) > 0) continue;
    int status = 0;
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    return status;
  }

 private:
  int terminal_ = -1;
  pid_t child_ = -1;
};

// Ctrl-C before the first word of an answer: there was none, and so what was said is taken back.
TEST(Chat, WhatWasStoppedBeforeItsAnswerIsForgotten) {
  ForeignServer server;
  TerminalChat chat(server.url());
  chat.read_until("> ");
  chat.type("wait\n");
  EXPECT_TRUE(support::eventually([&] { return server.asked().size() == 1; }));
  chat.type("\x03");
  chat.read_until("\n> ");
  chat.type("hello\n");
  EXPECT_TRUE(has(chat.read_until("\n> "), "well"));
  EXPECT_EQ(chat.leave(), 0);
  const auto asked = server.asked();
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[1]["messages"], Json::array({said_by("user", "hello")}));
}

// Half an answer is better than none: the conversation goes on with it.
TEST(Chat, OfAnAnswerThatWasCutOffTheBeginningIsKept) {
  ForeignServer server;
  TerminalChat chat(server.url());
  chat.read_until("> ");
  chat.type("half\n");
  EXPECT_TRUE(has(chat.read_until("\n> "), "tutti: the answer was cut off"));
  chat.type("nothing\n");
  EXPECT_TRUE(has(chat.read_until("\n> "), "there was no answer"));
  chat.type("hello\n");
  chat.read_until("\n> ");
  EXPECT_EQ(chat.leave(), 0);
  const auto asked = server.asked();
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[2]["messages"],
            Json({said_by("user", "half"), said_by("assistant", "well"), said_by("user", "hello")}));
}

}  // namespace
}  // namespace tutti
