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

TEST(Metrics, ALineThatDoesNotFitIsNotThereAtAll) {
  char folder[] = "/tmp/tutti-metrics-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/metrics.jsonl";
  const auto text = [&] {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  };
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
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::train
