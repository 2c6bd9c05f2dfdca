#include "node/agent/logs.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "node/rank/log_segments.hpp"

namespace tutti::agent {
namespace {

struct LogsTest : testing::Test {
  LogsTest() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-logs-XXXXXX").string();
    if (mkdtemp(path.data()) != nullptr) folder_ = path;
  }
  ~LogsTest() override { std::filesystem::remove_all(folder_); }

  void print(std::int32_t rank, const std::string& text) const {
    const std::string folder = folder_ + "/7.0." + std::to_string(rank);
    std::filesystem::create_directories(folder);
    rank::LogWriter(folder, mib(1)).append(text);
  }

  std::string folder_;
};

// Rank 0 of a gang has ended, and rank 1 begins and ends between two looks.
TEST_F(LogsTest, AStreamWaitsForRanksThatHaveNotBegun) {
  net::Loop loop;
  print(0, "zero\n");
  int looks = 0;
  std::string heard;
  Logs logs(loop, folder_,
            {.running =
                 [&](auto, auto) {
                   if (++looks < 3) return std::set<std::int32_t>{1};
                   if (looks == 3) print(1, "one\n");
                   return std::set<std::int32_t>{};
                 },
             .room = [] { return true; },
             .send =
                 [&](const wire::AgentMessage& message) {
                   if (const auto* chunk = std::get_if<wire::LogChunk>(&message)) heard += chunk->data;
                   if (std::holds_alternative<wire::LogEnd>(message)) loop.stop();
                 }});
  logs.read({.stream = 1, .job = cluster::JobId(7), .follow = true, .credit_bytes = 1 << 20});
  loop.run();
  EXPECT_EQ(heard, "zero\none\n");
}

TEST_F(LogsTest, ManyWhoFollowALogToWhichNothingIsAddedAreLookedForLessOften) {
  constexpr std::uint64_t readers = 400;
  net::Loop loop;
  print(0, "zero\n");
  std::uint64_t looks = 0;
  std::set<std::uint64_t> heard;
  Logs logs(loop, folder_,
            {.running =
                 [&](auto, auto) {
                   ++looks;
                   return std::set<std::int32_t>{0};
                 },
             .room = [] { return true; },
             .send =
                 [&](const wire::AgentMessage& message) {
                   if (const auto* chunk = std::get_if<wire::LogChunk>(&message)) heard.insert(chunk->stream);
                 }});
  for (std::uint64_t stream = 1; stream <= readers; ++stream)
    logs.read({.stream = stream, .job = cluster::JobId(7), .follow = true, .credit_bytes = 1 << 20});
  const auto end = loop.after(2s, [&] { loop.stop(); });
  const auto begun = std::chrono::steady_clock::now();
  loop.run();
  // Each looks once and, having found something, once more; then once a second. It was twenty times a second.
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_EQ(heard.size(), readers);
  EXPECT_LE(static_cast<double>(looks), static_cast<double>(readers) * (3 + seconds));
}

}  // namespace
}  // namespace tutti::agent
