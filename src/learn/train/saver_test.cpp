#include "learn/train/saver.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "comm/ranks_test.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/train/initial_values.hpp"
#include "learn/train/transformer.hpp"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

const model::Shape shape = model::make_shape(
    "gpt2", {.vocabulary = 61, .layers = 1, .hidden = 32, .heads = 4, .intermediate = 96, .context = 16});

// No more than so many bytes beside what the process has: what asks for them gets an exception.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + bytes;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(Saver, WhatItsThreadThrowsIsTheErrorOfTheSave) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer does not throw when memory is out";
#endif
  std::string folder = (fs::temp_directory_path() / "saver_test_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(checkpoint::claim(folder, {}));
  comm::run_threads(2, comm::Transport::automatic, [&](comm::Communicator& world) {
    if (world.rank() == 1) {
      // A rank whose record is as long as it may be, and longer than what rank 0 has left.
      auto meeting = world.split(0, world.rank(), "checkpoints");
      ASSERT_TRUE(meeting.ok()) << meeting.error().text();
      const std::int64_t length = std::int64_t{1} << 30;
      std::array<std::int64_t, 2> lengths{};
      ASSERT_TRUE(meeting->all_gather(&length, lengths.data(), 1, comm::DataType::i64).wait().ok());
      const auto left_alone = meeting->barrier().wait();
      ASSERT_FALSE(left_alone.ok());
      EXPECT_NE(left_alone.error().text().find("rank 0 on node "), std::string::npos);
      EXPECT_NE(left_alone.error().text().find("aborted: checkpoint of step 7 : std::bad_alloc"),
                std::string::npos)
          << left_alone.error().text();
      return;
    }
    Saver saver({.folder = folder}, world);
    Groups alone;
    Transformer model({.setup = Setup::make(shape, alone, 1, shape.context, at::kCPU)}, alone);
    model.parameters().fill(initial_values(1), true);
    const MemoryLimit limit(rlim_t{512} << 20);
    saver.begin(model.parameters(), {.step = 7});
    saver.provide_loss(1.0);
    const auto saved = saver.finish();
    ASSERT_FALSE(saved.ok());
    EXPECT_EQ(saved.error().text(), "checkpoint of step 7 : std::bad_alloc");
    EXPECT_EQ(saver.committed_step(), -1);
  });
  fs::remove_all(folder);
}

// A rank of another user still has a file open in it on a shared disk, or somebody has mounted something
// there.
TEST(Saver, ACheckpointIsSafeThoughAnOldOneCannotBeRemoved) {
  std::string folder = (fs::temp_directory_path() / "saver_test_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(checkpoint::claim(folder, {}));
  const std::string mounted = folder + "/.step-00000001.removed/disk";
  fs::create_directories(mounted);
  if (mount("none", mounted.c_str(), "tmpfs", 0, "size=64k") != 0) {
    fs::remove_all(folder);
    GTEST_SKIP() << "this process may not mount a disk";
  }
  std::ofstream(mounted + "/file") << "kept";
  testing::internal::CaptureStderr();
  comm::run_threads(1, comm::Transport::automatic, [&](comm::Communicator& world) {
    Saver saver({.folder = folder, .kept = 1}, world);
    Groups alone;
    Transformer model({.setup = Setup::make(shape, alone, 1, shape.context, at::kCPU)}, alone);
    model.parameters().fill(initial_values(1), true);
    saver.begin(model.parameters(), {.step = 7});
    saver.provide_loss(1.0);
    const auto saved = saver.finish();
    EXPECT_TRUE(saved.ok()) << saved.error().text();
    EXPECT_EQ(saver.committed_step(), 7);
  });
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(umount2(mounted.c_str(), MNT_DETACH), 0);
  EXPECT_NE(told.find("an old checkpoint stays: "), std::string::npos) << told;
  EXPECT_EQ(checkpoint::steps_in(folder).value(), std::vector<std::int64_t>{7});
  fs::remove_all(folder);
  fs::remove(folder + ".committed");
}

}  // namespace
}  // namespace tutti::train
