#include "node/rank/log_segments.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "node/rank/folder_test.hpp"

namespace tutti::rank {
namespace {

class LogSegments : public FolderTest {
 protected:
  std::string whole(std::uint64_t offset = 0) {
    const auto chunk = read_log(folder(), offset, std::size_t{1} << 24);
    return chunk ? chunk->bytes : chunk.error().text();
  }
  std::ptrdiff_t files() {
    return std::distance(std::filesystem::directory_iterator(folder()),
                         std::filesystem::directory_iterator());
  }
};

TEST_F(LogSegments, AnEmptyLogHasNothingToRead) {
  EXPECT_EQ(whole(), "");
  EXPECT_EQ(*log_end(folder()), 0U);
  EXPECT_EQ(*last_lines(folder(), 3, 100), "");
  EXPECT_FALSE(read_log(path("missing"), 0, 1));
}

TEST_F(LogSegments, AReaderGoesAcrossSegments) {
  LogWriter writer(folder(), Bytes(40));
  writer.append("0123456789abcdefghijklmnop");
  EXPECT_EQ(files(), 3);
  EXPECT_EQ(whole(), "0123456789abcdefghijklmnop");
  const auto middle = read_log(folder(), 8, 5);
  ASSERT_TRUE(middle);
  EXPECT_EQ(middle->offset, 8U);
  EXPECT_EQ(middle->bytes, "89abc");
  EXPECT_EQ(*log_end(folder()), 26U);
  EXPECT_EQ(whole(26), "");
}

TEST_F(LogSegments, RotationKeepsTheTail) {
  LogWriter writer(folder(), Bytes(40));
  std::string text;
  for (int line = 0; line < 100; ++line) text += std::to_string(line) + "\n";
  for (const char letter : text) writer.append(std::string_view(&letter, 1));
  EXPECT_EQ(files(), 4);
  const auto chunk = read_log(folder(), 0, 1000);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(chunk->offset, text.size() - chunk->bytes.size());
  EXPECT_EQ(chunk->offset % 10, 0U);
  EXPECT_GT(chunk->bytes.size(), 30U);
  EXPECT_TRUE(text.ends_with(chunk->bytes));
  EXPECT_EQ(*log_end(folder()), text.size());
}

TEST_F(LogSegments, AWriterGoesOnBehindWhatIsThere) {
  LogWriter(folder(), kib(16)).append("first\n");
  LogWriter(folder(), kib(16)).append("second\n");
  EXPECT_EQ(whole(), "first\nsecond\n");
}

TEST_F(LogSegments, LastLinesAreWholeLines) {
  LogWriter writer(folder(), kib(16));
  writer.append("one\ntwo\nthree\nfour\n");
  EXPECT_EQ(*last_lines(folder(), 2, 1000), "three\nfour\n");
  EXPECT_EQ(*last_lines(folder(), 10, 1000), "one\ntwo\nthree\nfour\n");
  EXPECT_EQ(*last_lines(folder(), 10, 7), "four\n");
  EXPECT_EQ(*last_lines(folder(), 10, 3), "ur\n");
  EXPECT_EQ(*last_lines(folder(), 0, 1000), "");
  writer.append("five");
  EXPECT_EQ(*last_lines(folder(), 2, 1000), "four\nfive");
}

TEST_F(LogSegments, WhatIsNoFileIsNotRead) {
  const std::string segment = path("log.00000000000000000000");
  std::filesystem::create_symlink("/dev/zero", segment);
  EXPECT_NE(whole().find("it is no file"), std::string::npos) << whole();
  EXPECT_FALSE(log_end(folder()));
  EXPECT_FALSE(last_lines(folder(), 3, 100));
  std::filesystem::remove(segment);
  ASSERT_EQ(mkfifo(segment.c_str(), 0600), 0);
  EXPECT_NE(whole().find("it is no file"), std::string::npos) << whole();
  LogWriter(folder(), kib(16)).append("over the pipe\n");
  EXPECT_EQ(whole(), "over the pipe\n");
}

// A limit on the size of files stands in for a full disk: the write fails, and later one succeeds.
TEST_F(LogSegments, AFullDiskLeavesAGapThatTheLogTellsOf) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    LogWriter writer(folder(), kib(64));
    const rlimit full{.rlim_cur = 10, .rlim_max = RLIM_INFINITY};
    const rlimit room{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &full);
    writer.append("0123456789abcde");
    writer.append("lost");
    setrlimit(RLIMIT_FSIZE, &room);
    writer.append("back\n");
    writer.append("again\n");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(whole(),
            "0123456789\ntutti: 9 bytes of output are missing here: the disk was full\nback\nagain\n");
}

// Its own are dropped all the same: a log has no more than it may have.
TEST_F(LogSegments, NamesOfTheRanksOwnDoNotLetTheLogGrow) {
  LogWriter writer(folder(), Bytes(40));
  writer.append("0123456789");
  constexpr int laid = 2000;
  for (int name = 0; name < laid; ++name)
    std::ofstream(path("log.0000000000009999" + std::to_string(1000 + name)));
  for (int segment = 0; segment < 20; ++segment) writer.append("abcdefghij");
  EXPECT_EQ(files(), laid + 4);
}

// A rank may leave a file whose name says that its log ends where numbers do.
TEST_F(LogSegments, AFileBeyondAllLogsIsNoneOfThem) {
  LogWriter(folder(), Bytes(1000)).append("said");
  std::ofstream(path("log.18446744073709550000")) << std::string(4000, 'A');
  EXPECT_EQ(whole(), "said");
  EXPECT_EQ(*log_end(folder()), 4U);
  EXPECT_EQ(*last_lines(folder(), 3, 100), "said");
}

}  // namespace
}  // namespace tutti::rank
