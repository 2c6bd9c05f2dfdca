#include "node/agent/removals.hpp"

#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

namespace fs = std::filesystem;

class RemovalsTest : public testing::Test {
 protected:
  RemovalsTest() {
    std::string path = testing::TempDir() + "tutti-removals-XXXXXX";
    root_ = mkdtemp(path.data());
  }
  ~RemovalsTest() override { fs::remove_all(root_); }

  struct Step {
    std::function<bool()> holds;
    std::function<void()> then = [] {};
  };
  // One after the other, each as soon as it holds; a loop runs once.
  void go(const std::vector<Step>& steps) {
    std::size_t done = 0;
    const auto look = loop_.every(1ms, [&] {
      if (done < steps.size() && steps[done].holds()) steps[done++].then();
      if (done == steps.size()) loop_.stop();
    });
    const auto give_up = loop_.after(60s, [this] { loop_.stop(); });
    loop_.run();
    EXPECT_EQ(done, steps.size());
  }
  std::string removed() const { return root_ + "/removed"; }

  std::string root_;
  net::Loop loop_;
};

TEST_F(RemovalsTest, WhatIsMovedOutIsGone) {
  fs::create_directories(root_ + "/work/7.0/deep");
  Removals removals(loop_, removed());
  removals.move_out(root_ + "/work/7.0", "ann");
  removals.move_out(root_ + "/work/8.0", "ann");
  go({{.holds = [&] {
    return !fs::exists(root_ + "/work/7.0") && fs::exists(removed()) && fs::is_empty(removed());
  }}});
  EXPECT_EQ(removals.bytes(), Bytes());
}

// Its owner may have a disk in it, as here, or change it without end.
TEST_F(RemovalsTest, WhatCannotBeRemovedCountsAndIsTriedAgain) {
  // In whichever of the two it comes to a stop, the other stays as it is.
  for (const std::string one : {"/work/7.0/a", "/work/7.0/b"}) {
    fs::create_directories(root_ + one + "/disk");
    std::ofstream(root_ + one + "/large") << std::string(1 << 18, 'x');
    if (::mount("none", (root_ + one + "/disk").c_str(), "tmpfs", 0, "size=64k") == 0) continue;
    GTEST_SKIP() << "needs the right to mount";
  }
  Removals removals(loop_, removed(), 5ms);
  removals.move_out(root_ + "/work/7.0", "ann");
  const auto unmount = [&] {
    const std::string tree = fs::directory_iterator(removed())->path();
    for (const char* disk : {"/a/disk", "/b/disk"})
      EXPECT_EQ(::umount2((tree + disk).c_str(), MNT_DETACH), 0);
  };
  go({{.holds = [&] { return removals.bytes() >= kib(256); }, .then = unmount},
      {.holds = [&] { return removals.bytes() == Bytes() && fs::is_empty(removed()); }}});
}

TEST_F(RemovalsTest, WhatAnotherCouldNotRemoveIsTriedAgainUntilItIsGone) {
  // Below a file nothing can be removed.
  std::ofstream(root_ + "/odd") << "";
  Removals removals(loop_, removed(), 5ms);
  removals.stays(root_ + "/odd/tree");
  int turns = 0;
  const auto count = loop_.every(5ms, [&] { ++turns; });
  const auto let_go = [&] {
    fs::remove(root_ + "/odd");
    fs::create_directories(root_ + "/odd/tree/deep");
  };
  go({{.holds = [&] { return turns > 3; }, .then = let_go},
      {.holds = [&] { return !fs::exists(root_ + "/odd/tree"); }}});
}

TEST_F(RemovalsTest, WhatAnEarlierAgentLeftIsRemoved) {
  fs::create_directories(removed() + "/7.0.0.12.1/deep");
  Removals removals(loop_, removed());
  removals.remove_left();
  go({{.holds = [&] { return fs::is_empty(removed()); }}});
}

}  // namespace
}  // namespace tutti::agent
