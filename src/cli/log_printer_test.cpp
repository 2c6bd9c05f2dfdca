#include "cli/log_printer.hpp"

#include <cerrno>
#include <cstdlib>

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

// Everything that is printed, up to now.
class Paper {
 public:
  Paper() : file_(::open_memstream(&text_, &size_)) {}
  Paper(const Paper&) = delete;
  Paper& operator=(const Paper&) = delete;
  ~Paper() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

struct LogPrinterTest : testing::Test {
  Paper paper;
  LogPrinter printer{{}, paper.file()};
  std::map<int, std::uint64_t> offsets;

  void print(const std::string& text, int rank = 0) {
    printer.take({rank, 0, offsets[rank], text.size(), text}, true);
    offsets[rank] += text.size();
  }
};

TEST_F(LogPrinterTest, PrintsWholeLinesWithTheirRank) {
  print("one\ntw");
  print("other\n", 1);
  print("o\nthree");
  EXPECT_EQ(paper.text(), "[0] one\n[1] other\n[0] two\n");
  printer.finish();
  EXPECT_EQ(paper.text(), "[0] one\n[1] other\n[0] two\n[0] three\n");
}

TEST_F(LogPrinterTest, WhatComesAgainIsPassedOverAndWhatIsMissingCounted) {
  print("one\n");
  printer.take({0, 0, 0, 8, "one\ntwo\n"}, true);
  EXPECT_EQ(paper.text(), "[0] one\n[0] two\n");
  EXPECT_EQ(printer.take({0, 0, 20, 5, "last\n"}, true), 12U);
}

TEST_F(LogPrinterTest, ABarThatOnlyReturnsIsSeenAsItGrows) {
  print("10%\r");
  EXPECT_EQ(paper.text(), "[0] 10%\r");
  print("20%\r");
  print("\n");
  EXPECT_EQ(paper.text(), "[0] 10%\r20%\r\n") << "a file gets the bytes of the log";
  print("30%\r");
  print("words\n", 1);
  print("40%\r\n");
  EXPECT_EQ(paper.text(), "[0] 10%\r20%\r\n[0] 30%\r\n[1] words\n[0] 40%\r\n");
}

TEST_F(LogPrinterTest, OnATerminalABarKeepsItsRank) {
  LogPrinter terminal({.terminal = true}, paper.file());
  terminal.take({0, 0, 0, 8, "10%\r20%\r"}, true);
  terminal.take({0, 0, 8, 5, "done\n"}, true);
  EXPECT_EQ(paper.text(), "[0] 10%\r[0] 20%\r[0] done\n");
}

TEST_F(LogPrinterTest, WhatNeverEndsIsNotGathered) {
  const std::string much(100'000, 'x');
  print(much);
  print("y");
  EXPECT_EQ(paper.text(), "[0] " + much);
  print("\n");
  EXPECT_EQ(paper.text(), "[0] " + much + "y\n");
}

TEST_F(LogPrinterTest, WhyItCannotBeWrittenIsKnown) {
  EXPECT_EQ(printer.failure(), 0);
  std::FILE* const full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}}) {
    const std::string text = std::string(bytes, 'x') + "\n";
    LogPrinter unlucky({}, full);
    unlucky.take({0, 0, 0, text.size(), text}, true);
    EXPECT_EQ(unlucky.failure(), ENOSPC) << bytes;
  }
  std::fclose(full);
}

TEST_F(LogPrinterTest, LiveLinesTakeEachOthersPlace) {
  LogPrinter terminal({.prefix = false, .terminal = true, .live_line = "step "}, paper.file());
  const std::string text = "step 1\nstep 2\ndone\n";
  terminal.take({0, 0, 0, text.size(), text}, true);
  EXPECT_EQ(paper.text(), "step 1\r\033[Kstep 2\ndone\n");
}

}  // namespace
}  // namespace tutti::cli
