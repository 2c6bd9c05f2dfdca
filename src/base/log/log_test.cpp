#include "base/log/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <thread>

#include "base/check.hpp"
#include "base/files/descriptor.hpp"

namespace tutti::log {
namespace {

class Log : public testing::Test {
 protected:
  void TearDown() override { setup({}); }

  static std::string captured(const auto& action) {
    testing::internal::CaptureStderr();
    action();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, IsQuietByDefault) {
  const auto text = captured([] {
    debug("a detail");
    info("node {} joined", "n1");
    warning("disk {}% full", 93);
  });
  EXPECT_EQ(text.find("joined"), std::string::npos);
  EXPECT_NE(text.find("warning tutti: disk 93% full\n"), std::string::npos) << text;
}

TEST_F(Log, LevelOpensAndClosesIt) {
  setup({.level = Level::debug, .part = "agent"});
  EXPECT_NE(captured([] { debug("a detail"); }).find("debug agent: a detail"), std::string::npos);
  setup({.level = Level::off});
  EXPECT_EQ(captured([] { error("lost"); }), "");
}

TEST_F(Log, WhatATerminalWouldObeyIsShown) {
  setup({.level = Level::info, .part = "agent"});
  const auto line = captured([] { info("node {} joined", "n1\x1b[2J\nn2"); });
  EXPECT_NE(line.find("node n1\\x1b[2J\\x0an2 joined\n"), std::string::npos) << line;
}

TEST_F(Log, JsonLinesAreEscaped) {
  setup({.level = Level::info, .json = true, .part = "controller"});
  const auto line = captured([] { info("said \"{}\"\n\\", "hi"); });
  EXPECT_EQ(line.find("{\"time\":\"20"), 0U) << line;
  EXPECT_NE(line.find(R"("level":"info","part":"controller","message":"said \"hi\"\u000a\\"})"),
            std::string::npos)
      << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one record, one line";
}

TEST_F(Log, ArgumentsAreNotFormattedWhenClosed) {
  setup({.level = Level::error});
  EXPECT_FALSE(enabled(Level::info));
  EXPECT_TRUE(enabled(Level::error));
  EXPECT_FALSE(enabled(Level::off));
}

TEST_F(Log, ParsesLevels) {
  EXPECT_EQ(*parse_level("debug"), Level::debug);
  EXPECT_EQ(*parse_level("off"), Level::off);
  EXPECT_FALSE(parse_level("loud").ok());
  EXPECT_FALSE(parse_level("").ok());
}

// stderr as a pipe, as after `2>&1 | tee`, until the end of its life.
class PipedStderr {
 public:
  PipedStderr() : before_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    read_ = files::FileDescriptor(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  ~PipedStderr() { restore(); }
  PipedStderr(const PipedStderr&) = delete;
  PipedStderr& operator=(const PipedStderr&) = delete;

  // Only the reader has it then: reading ends when all that was written is read.
  void restore() { ::dup2(before_.get(), STDERR_FILENO); }
  std::string take() const {
    std::array<char, 1 << 16> buffer{};
    const ssize_t count = ::read(read_.get(), buffer.data(), buffer.size());
    return std::string(buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  }

 private:
  files::FileDescriptor before_;
  files::FileDescriptor read_;
};

TEST_F(Log, WhatWasLoggedBeforeTheEndIsThere) {
  const auto text = captured([] {
    setup({.part = "agent", .serves = true});
    for (int at = 0; at < 1000; ++at) warning("line {}", at);
    say("and as it is\n");
    EXPECT_TRUE(finish());
  });
  EXPECT_NE(text.find("warning agent: line 0\n"), std::string::npos);
  EXPECT_NE(text.find("warning agent: line 999\nand as it is\n"), std::string::npos);
}

// The lines that are there, and those that are told to be missing.
std::pair<int, int> counted(const std::string& text) {
  std::pair<int, int> counts;
  const std::string before = "warning controller: ";
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at)) {
    at += before.size();
    const bool line = text.compare(at, 5, "line ") == 0;
    (line ? counts.first : counts.second) += line ? 1 : std::stoi(text.substr(at));
  }
  return counts;
}

// Far more than a pipe and the queue hold.
TEST_F(Log, APipeThatNobodyReadsBlocksNobodyAndWhatIsMissingIsCounted) {
  constexpr int lines = 100'000;
  PipedStderr piped;
  setup({.part = "controller", .serves = true});
  for (int at = 0; at < lines; ++at) warning("line {}", at);
  EXPECT_FALSE(finish()) << "it does not wait for ever";
  std::string read;
  std::thread reader([&] {
    for (std::string more = piped.take(); !more.empty(); more = piped.take()) read += more;
  });
  while (!finish()) continue;
  setup({});
  piped.restore();
  reader.join();
  const auto [there, missing] = counted(read);
  EXPECT_LT(there, lines);
  EXPECT_EQ(there + missing, lines);
}

using LogDeathTest = Log;

TEST_F(LogDeathTest, LastWordsAreWrittenBehindWhatWaits) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        setup({.part = "controller", .serves = true});
        error("cannot go on");
        TUTTI_CHECK(false, "a fact");
      },
      "error controller: cannot go on\n.*check failed: false: a fact\n");
  EXPECT_DEATH(
      {
        setup({.part = "controller", .serves = true});
        error("cannot go on");
        std::thread([] { throw std::runtime_error("no memory"); }).join();
      },
      "error controller: cannot go on\nterminate called: no memory\n");
}

TEST_F(LogDeathTest, AnAbortDoesNotWaitForWhoeverDoesNotRead) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const PipedStderr piped;
        setup({.part = "controller", .serves = true});
        for (int at = 0; at < 10'000; ++at) error("line {}", at);
        TUTTI_CHECK(false);
      },
      testing::KilledBySignal(SIGABRT), "");
}

// Who is gone without a word leaves those who look after him guessing.
TEST_F(LogDeathTest, TheSignalThatEndsAProgramIsTold) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setup({.part = "agent", .serves = true});
        error("the last line");
        ::kill(::getpid(), SIGUSR1);
        for (;;) ::pause();
      },
      testing::KilledBySignal(SIGUSR1),
      "error agent: the last line\ntutti: agent: a signal ends it: User defined signal 1 \\(10\\), sent by "
      "process [0-9]+\n");
}

TEST_F(LogDeathTest, ASignalDoesNotWaitForWhoeverDoesNotRead) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const PipedStderr piped;
        setup({.part = "agent", .serves = true});
        for (int at = 0; at < 10'000; ++at) error("line {}", at);
        ::kill(::getpid(), SIGUSR1);
        for (;;) ::pause();
      },
      testing::KilledBySignal(SIGALRM), "");
}

TEST_F(Log, SignalsAreAsTheyWereOnceNobodyServes) {
  setup({.part = "agent", .serves = true});
  struct sigaction action {};
  ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &action), 0);
  EXPECT_NE(action.sa_flags & SA_SIGINFO, 0);
  setup({});
  ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace tutti::log
