#include "learn/train/metrics.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

// Files of this process end at that size, as they would on a full disk.
class FilesEndAt {
 public:
  explicit FilesEndAt(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
  }
  FilesEndAt(const FilesEndAt&) = delete;
  FilesEndAt& operator=(const FilesEndAt&) = delete;
  ~FilesEndAt() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

class Metrics : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/tutti-metrics-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    path = folder_ + "/metrics.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  }

  std::string path;

 private:
  std::string folder_;
};

TEST_F(Metrics, ALineThatDoesNotFitIsNotThereAtAll) {
  auto file = MetricsFile::open(path, 0);
  ASSERT_TRUE(file.ok()) << file.error().text();
  const StepMetrics first{.step = 1, .loss = 2};
  const StepMetrics second{.step = 2, .loss = 1};
  ASSERT_TRUE(file->append(first).ok());
  {
    const FilesEndAt full(first.json().size() + 10);
    EXPECT_FALSE(file->append(second).ok());
  }
  EXPECT_EQ(text(), first.json());
  EXPECT_TRUE(file->append(second).ok());
  EXPECT_EQ(text(), first.json() + second.json()) << "nothing is glued to anything";
}

TEST_F(Metrics, WhatAnAttemptWritesThatWasReplacedIsRefused) {
  auto old = MetricsFile::open(path, 0);
  ASSERT_TRUE(old.ok()) << old.error().text();
  const StepMetrics first{.step = 1, .loss = 2, .skipped = 1};
  const StepMetrics second{.step = 2, .loss = 1};
  ASSERT_TRUE(old->append(first).ok());
  ASSERT_TRUE(old->append({.step = 2, .loss = 7}).ok());
  auto next = MetricsFile::open(path, 1);
  ASSERT_TRUE(next.ok()) << next.error().text();
  EXPECT_EQ(next->skipped(), 1);
  EXPECT_FALSE(old->append({.step = 3, .loss = 7}).ok());
  ASSERT_TRUE(next->append(second).ok());
  EXPECT_FALSE(old->append({.step = 4, .loss = 7}).ok());
  EXPECT_EQ(text(), first.json() + second.json());
}

}  // namespace
}  // namespace tutti::train
