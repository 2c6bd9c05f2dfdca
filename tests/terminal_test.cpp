// What other people and programs wrote reaches a terminal as text: nothing of it is obeyed. And nothing that
// a person names is waited for for ever.
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"
#include "support/connection.hpp"

namespace tutti {
namespace {

using Json = nlohmann::json;
using support::has;
using support::read_text;
using support::TestCluster;
using support::write_text;

constexpr const char* escape = "\x1b";

// All that a program sends to a terminal.
std::string sent_to_terminal(const std::vector<std::string>& words,
                             const std::map<std::string, std::string>& env) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    for (const auto& [name, value] : env) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  std::string sent;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(terminal, buffer.data(), buffer.size())) > 0;)
    sent.append(buffer.data(), static_cast<std::size_t>(got));
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return sent;
}

class Terminal : public testing::Test {
 protected:
  // A POST by hand, as a program would send it that is not ours.
  std::string post(const std::string& path, const std::string& body) {
    const std::string address = support::lines_of(read_text(cluster_.home() + "/address")).front();
    const std::string token =
        support::lines_of(read_text(cluster_.home() + "/controller/admin.token")).front();
    const support::Connection connection(
        static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    connection.send("POST /api/v1/" + path +
                    " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + token +
                    "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                    "\r\n\r\n" + body);
    return connection.read();
  }

  TestCluster cluster_{1, 2};
};

TEST_F(Terminal, TheEndOfALogIsShownAndNotObeyed) {
  const std::string script = R"(printf '\033]0;owned\007\033[2Jbye\n'; exit 3)";
  const auto ran = cluster_.run({}, script);
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_FALSE(has(ran.err, escape)) << ran.err;
  EXPECT_TRUE(has(ran.err, "\\x1b]0;owned\\x07\\x1b[2Jbye")) << ran.err;
  EXPECT_TRUE(has(ran.out, "\x1b]0;owned\x07")) << "what goes to a file is the log as it is";
  for (const auto& words : {std::vector<std::string>{"show", "1"}, {"jobs", "--all"}, {"explain", "1"}}) {
    const auto shown = cluster_.tutti(words);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_FALSE(has(shown.out + shown.err, escape)) << shown.out << shown.err;
  }
}

TEST_F(Terminal, ALogKeepsItsColoursOnATerminal) {
  ASSERT_EQ(cluster_.run({}, R"(printf '\033[31mred\033[0m \033[2J\033]0;owned\007\n')").exit_code, 0);
  const std::vector<std::string> words{support::tutti_program, "logs", "1", "--no-prefix"};
  EXPECT_EQ(sent_to_terminal(words, cluster_.env()), "\x1b[31mred\x1b[0m \\x1b[2J\\x1b]0;owned\\x07\r\n");
  auto raw = words;
  raw.emplace_back("--raw");
  EXPECT_EQ(sent_to_terminal(raw, cluster_.env()), "\x1b[31mred\x1b[0m \x1b[2J\x1b]0;owned\x07\r\n");
}

TEST_F(Terminal, TheApiTakesNoControlCharactersInWords) {
  for (const char* key : {"name", "user", "workdir", "output"}) {
    Json job{{"command", {"true"}}, {"shape", {{"ranks", 1}}}};
    job[key] = "a\x1b[2Jb";
    const std::string answer = post("jobs", Json{{"jobs", Json::array({job})}}.dump());
    EXPECT_TRUE(has(answer, "HTTP/1.1 400")) << key << answer;
    EXPECT_TRUE(has(answer, "holds a control character")) << key << answer;
  }
  EXPECT_EQ(cluster_.json({"jobs", "--all"}), Json::array());
  // Who cancels is a word of the request, too.
  const std::string id = cluster_.submit({}, "sleep 60");
  EXPECT_TRUE(has(post("jobs/" + id + "/cancel?by=%1b%5b2J", ""), "HTTP/1.1 200"));
  EXPECT_TRUE(cluster_.becomes(id, "cancelled"));
  EXPECT_EQ(cluster_.job(id)["reason"], "cancelled by \\x1b[2J");
}

TEST(NoWaiting, ForAPipeThatAPersonNames) {
  const support::TempFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  const std::string checkpoint = folder.path() + "/step-00000001";
  std::filesystem::create_directories(checkpoint);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((checkpoint + "/manifest.json").c_str(), 0600), 0);
  const std::string data = folder.path() + "/data";
  const std::string text = folder.path() + "/text";
  write_text(text, "some text");
  std::filesystem::create_directories(data);
  ASSERT_EQ(::mkfifo((data + "/dataset.json").c_str(), 0600), 0);
  const std::vector<std::vector<std::string>> all{
      {"checkpoint", "verify", checkpoint},
      {"checkpoint", "export", checkpoint, "--out", folder.path() + "/out"},
      {"data", "pack", text, "--out", folder.path() + "/packed", "--tokenizer", pipe},
      {"data", "show", data},
      {"data", "pack", pipe, "--out", folder.path() + "/packed"},
      {"submit", pipe},
      {"train", pipe},
  };
  for (const auto& given : all) {
    std::vector<std::string> words{support::tutti_program};
    words.insert(words.end(), given.begin(), given.end());
    const auto done = support::run(words, {.env = {{"TUTTI_HOME", folder.path()}}, .timeout = 20s});
    EXPECT_FALSE(done.timed_out) << given[0] << " " << given[1];
    EXPECT_NE(done.exit_code, 0) << given[0] << " " << given[1];
    EXPECT_FALSE(done.err.empty());
  }
  const auto listed =
      support::run({support::tutti_program, "checkpoint", "ls", folder.path()}, {.timeout = 20s});
  EXPECT_FALSE(listed.timed_out);
}

}  // namespace
}  // namespace tutti
