#include "node/agent/removals.hpp"

#include <sys/mount.h>
#include <sys/stat.h>
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

// Its owner may have something mounted in it, as here, or change it without end.
TEST_F(RemovalsTest, WhatCannotBeRemovedCountsAndIsTriedAgain) {
  fs::create_directories(root_ + "/work/7.0");
  const std::string large = root_ + "/work/7.0/large";
  std::ofstream(large) << std::string(1 << 18, 'x');
  if (::mount(large.c_str(), large.c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "needs the right to mount";
  Removals removals(loop_, removed(), 5ms);
  removals.move_out(root_ + "/work/7.0", "ann");
  const auto unmount = [&] {
    const std::string tree = fs::directory_iterator(removed())->path();
    EXPECT_EQ(::umount2((tree + "/large").c_str(), MNT_DETACH), 0);
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

constexpr uid_t ann = 54'321;
constexpr uid_t ben = 54'323;

class RemovalsOfUsers : public RemovalsTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  static void make(const std::string& path, uid_t owner) {
    fs::create_directories(path);
    EXPECT_EQ(::chown(path.c_str(), owner, owner), 0);
  }
  // With what its account may not have removed.
  std::string spoilt(int number) const {
    std::string tree = root_ + "/work/" + std::to_string(number);
    make(tree, ann);
    make(tree + "/team", ben);
    fs::create_directories(tree + "/team/work");
    return tree;
  }
};

TEST_F(RemovalsOfUsers, ATreeTellsWhoseItIs) {
  EXPECT_EQ(owner_of_tree(root_ + "/absent"), "");
  make(root_ + "/places/7.0/tmp/roots", 0);
  EXPECT_EQ(owner_of_tree(root_ + "/places/7.0"), "");
  make(root_ + "/places/7.0/tmp/hers", ann);
  EXPECT_EQ(owner_of_tree(root_ + "/places/7.0"), account_owner(ann));
  EXPECT_EQ(owner_of_tree(root_ + "/places/7.0/tmp/hers"), account_owner(ann));
}

TEST_F(RemovalsOfUsers, HoweverManyTreesOfOneAccountStayThoseOfOthersAreTriedAgain) {
  Removals removals(loop_, removed(), 5ms, {.of_users = true});
  const auto many = static_cast<int>(staying_max);
  for (int number = 0; number < many; ++number) removals.remove(spoilt(number), account_owner(ann));
  const auto last = [&](uid_t owner) {
    make(root_ + "/last", owner);
    removals.remove(root_ + "/last", account_owner(owner));
  };
  last(ann);
  // Of ben's one cannot be removed now either.
  std::ofstream(root_ + "/odd") << "";
  const auto next = [&] {
    removals.remove(root_ + "/odd/tree", account_owner(ben));
    last(ben);
  };
  const auto let_go = [&] {
    fs::remove(root_ + "/odd");
    fs::create_directories(root_ + "/odd/tree/deep");
  };
  const auto last_has_gone = [&] { return !fs::exists(root_ + "/last"); };
  go({{.holds = last_has_gone, .then = next}, {.holds = last_has_gone, .then = let_go}, {.holds = [&] {
        return !fs::exists(root_ + "/odd/tree");
      }}});
  EXPECT_TRUE(fs::exists(root_ + "/work/0/team/work"));
}

}  // namespace
}  // namespace tutti::agent
