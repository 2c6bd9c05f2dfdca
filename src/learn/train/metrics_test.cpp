#include "learn/train/metrics.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

// What was written to the disk, while somebody looks.
std::set<std::string>* written_to_disk = nullptr;

}  // namespace
}  // namespace tutti::train

extern "C" int fsync(int file) {
  if (tutti::train::written_to_disk != nullptr)
    tutti::train::written_to_disk->insert(
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)).string());
  return static_cast<int>(syscall(SYS_fsync, file));
}

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
  std::string folder_;
};

TEST_F(Metrics, ALineThatDoesNotFitIsNotThereAtAll) {
  auto file = MetricsFile::open(path, 0);
  ASSERT_TRUE(file.ok()) << file.error().text();
  const StepMetrics first{.step = 1, .loss = 2};
  const StepMetrics second{.step = 2, .loss = 1};
  ASSERT_TRUE(file->append(first.json()).ok());
  {
    const FilesEndAt full(first.json().size() + 10);
    EXPECT_FALSE(file->append(second.json()).ok());
  }
  EXPECT_EQ(text(), first.json());
  EXPECT_TRUE(file->append(second.json()).ok());
  EXPECT_EQ(text(), first.json() + second.json()) << "nothing is glued to anything";
}

TEST_F(Metrics, WhatAnAttemptWritesThatWasReplacedIsRefused) {
  auto old = MetricsFile::open(path, 0);
  ASSERT_TRUE(old.ok()) << old.error().text();
  const StepMetrics first{.step = 1, .loss = 2, .skipped = 1};
  const StepMetrics second{.step = 2, .loss = 1};
  ASSERT_TRUE(old->append(first.json()).ok());
  ASSERT_TRUE(old->append(StepMetrics{.step = 2, .loss = 7}.json()).ok());
  auto next = MetricsFile::open(path, 1);
  ASSERT_TRUE(next.ok()) << next.error().text();
  EXPECT_EQ(next->skipped(), 1);
  EXPECT_FALSE(old->append(StepMetrics{.step = 3, .loss = 7}.json()).ok());
  ASSERT_TRUE(next->append(second.json()).ok());
  EXPECT_FALSE(old->append(StepMetrics{.step = 4, .loss = 7}.json()).ok());
  EXPECT_EQ(text(), first.json() + second.json());
}

// A link that leads to itself can be read by nobody, not even by root.
TEST_F(Metrics, WhatCannotBeReadIsAnErrorAndStays) {
  std::filesystem::create_symlink(path, path);
  const auto file = MetricsFile::open(path, 1);
  ASSERT_FALSE(file.ok()) << "its lines would be gone";
  EXPECT_NE(file.error().text().find("metrics.jsonl"), std::string::npos) << file.error().text();
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST_F(Metrics, LinesOfOthersStayAndOnlyWhatIsComputedAgainGoes) {
  const std::string first = StepMetrics{.step = 1, .loss = 2}.json();
  const std::string second = StepMetrics{.step = 2, .loss = 1, .skipped = 3}.json();
  const std::string third = StepMetrics{.step = 3, .loss = 1, .skipped = 4}.json();
  const std::string others = "a note of somebody\n\n{\"evaluation\":0.5}\n";
  const std::string long_one = std::string(3 << 20, 'x') + "\n";
  std::ofstream(path) << first << others << third << long_one << second << others << third.substr(0, 20);
  auto file = MetricsFile::open(path, 2);
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(file->skipped(), 3);
  EXPECT_TRUE(text() == first + others + long_one + second + others) << text().size();
  ASSERT_TRUE(file->append(StepMetrics{.step = 3, .loss = 1, .skipped = 4}.json()).ok());
  EXPECT_TRUE(text() == first + others + long_one + second + others + third) << text().size();
}

TEST_F(Metrics, ALastLineThatLacksItsEndAloneStays) {
  const std::string first = StepMetrics{.step = 1, .loss = 2}.json();
  std::ofstream(path) << first.substr(0, first.size() - 1);
  ASSERT_TRUE(MetricsFile::open(path, 1).ok());
  EXPECT_EQ(text(), first);
  std::ofstream(path, std::ios::app) << "half of somebody's";
  ASSERT_TRUE(MetricsFile::open(path, 1).ok());
  EXPECT_EQ(text(), first);
}

TEST_F(Metrics, TheNewFileIsOnTheDiskBeforeTheOldOneGoes) {
  std::ofstream(path) << StepMetrics{.step = 1, .loss = 2}.json();
  std::set<std::string> written;
  written_to_disk = &written;
  const auto file = MetricsFile::open(path, 1);
  written_to_disk = nullptr;
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(written, (std::set<std::string>{path + ".new", folder_}));
}

// Its disk does not answer before it is told to.
struct StalledDisk {
  Result<> write(const std::string& line) {
    answered.wait();
    written += line;
    return {};
  }

  std::promise<void> answers;
  std::shared_future<void> answered = answers.get_future().share();
  std::string written;
};

TEST(MetricsWriter, ADiskThatStallsHoldsUpNoStep) {
  const auto disk = std::make_shared<StalledDisk>();
  auto writer = MetricsWriter::start([disk](const std::string& line) { return disk->write(line); });
  ASSERT_TRUE(writer.ok()) << writer.error().text();
  std::optional<Error> problem;
  std::int64_t steps = 0;
  for (; !problem && steps < 1'000'000; problem = writer->take_problem()) writer->append({.step = ++steps});
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->text(), "the disk takes no metrics: 4 MiB of them wait");
  EXPECT_GT(steps, 10'000);
  EXPECT_FALSE(writer->flush(std::chrono::milliseconds(1)));
  disk->answers.set_value();
  ASSERT_TRUE(writer->flush(std::chrono::minutes(1)));
  std::string expected;
  for (std::int64_t step = 1; step < steps; ++step) expected += StepMetrics{.step = step}.json();
  EXPECT_TRUE(disk->written == expected) << "all that had room, in its order";
  EXPECT_FALSE(writer->take_problem()) << "once is enough";
}

TEST(MetricsWriter, ADiskThatNeverAnswersHoldsUpNoEnd) {
  const auto disk = std::make_shared<StalledDisk>();
  {
    auto writer = MetricsWriter::start([disk](const std::string& line) { return disk->write(line); });
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    writer->append({.step = 1});
  }
  disk->answers.set_value();  // lets the thread go
}

TEST(MetricsWriter, WritesAllBeforeItEndsAndTellsOfTheFirstThatIsMissing) {
  const auto written = std::make_shared<std::string>();
  int lines = 0;
  {
    auto writer = MetricsWriter::start([written, &lines](const std::string& line) -> Result<> {
      if (++lines < 3) return failed("no room for " + std::to_string(lines));
      *written += line;
      return {};
    });
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    for (std::int64_t step = 1; step <= 3; ++step) writer->append({.step = step});
    ASSERT_TRUE(writer->flush(std::chrono::minutes(1)));
    EXPECT_EQ(writer->take_problem().value().text(), "no room for 1");
    EXPECT_FALSE(writer->take_problem()) << "once is enough";
    writer->append({.step = 4});
    ASSERT_TRUE(writer->flush(std::chrono::minutes(1)));
  }
  EXPECT_EQ(*written, StepMetrics{.step = 3}.json() + StepMetrics{.step = 4}.json());
}

}  // namespace
}  // namespace tutti::train
