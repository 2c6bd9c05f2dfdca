#include "node/rank/private_mounts.hpp"

#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "node/rank/child_test.hpp"

namespace tutti::rank {
namespace {

namespace fs = std::filesystem;

// Not below /tmp, which the ranks of an attempt have for themselves.
class PrivateMountsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    if (!can_have_private_mounts()) GTEST_SKIP() << "needs mount namespaces";
    std::string path = "/var/lib/tutti-places-XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  ~PrivateMountsTest() override {
    if (folder_.empty()) return;
    fs::remove_all(folder_);
    fs::remove_all(places("a").memory);
    fs::remove_all(places("b").memory);
  }
  PrivatePlaces places(const std::string& name) const {
    return {.folder = folder_ + "/" + name,
            .memory = "/dev/shm/" + fs::path(folder_).filename().string() + "-" + name};
  }

  std::string folder_;
};

TEST_F(PrivateMountsTest, RanksOfOneAttemptShareTheirPlacesAndNobodyElseSeesThem) {
  ASSERT_TRUE(make_private_places(places("a")));
  ASSERT_TRUE(make_private_places(places("a"))) << "once more";
  ASSERT_TRUE(make_private_places(places("b")));
  const std::string mark = fs::path(folder_).filename().string();
  const auto begin = [&](const std::string& name, const auto& then) {
    return holds_in_a_child([&] { return enter_private_places(places(name)) == 0 && then(); });
  };
  EXPECT_TRUE(begin("a", [&] {
    for (const std::string place : {"/tmp/", "/var/tmp/", "/dev/shm/"}) std::ofstream(place + mark) << "mine";
    return fs::exists("/dev/shm/" + mark);
  }));
  EXPECT_TRUE(begin("a", [&] {
    return fs::exists("/tmp/" + mark) && fs::exists("/var/tmp/" + mark) && fs::exists("/dev/shm/" + mark);
  }));
  EXPECT_TRUE(begin(
      "b", [&] { return fs::is_empty("/tmp") && fs::is_empty("/var/tmp") && fs::is_empty("/dev/shm"); }));
  EXPECT_FALSE(fs::exists("/tmp/" + mark) || fs::exists("/var/tmp/" + mark) ||
               fs::exists("/dev/shm/" + mark));
  EXPECT_TRUE(fs::exists(places("a").folder + "/tmp/" + mark));
}

TEST_F(PrivateMountsTest, WhoIsNotRootSeesNoProcessOfOthers) {
  ASSERT_TRUE(make_private_places(places("a")));
  EXPECT_TRUE(fs::exists("/proc/1"));
  EXPECT_TRUE(holds_in_a_child([&] {
    return enter_private_places(places("a")) == 0 && setgid(54'321) == 0 && setuid(54'321) == 0 &&
           !fs::exists("/proc/1") && fs::exists("/proc/self");
  }));
}

// Neither has a process that it would end with.
TEST_F(PrivateMountsTest, MemoryAndQueuesThatARankLeavesAreGone) {
  ASSERT_TRUE(make_private_places(places("a")));
  const auto key = static_cast<key_t>(getpid());
  const std::string name = "/tutti-" + std::to_string(getpid());
  EXPECT_TRUE(holds_in_a_child([&] {
    return enter_private_places(places("a")) == 0 && shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600) >= 0 &&
           msgget(key, IPC_CREAT | IPC_EXCL | 0600) >= 0 &&
           semget(key, 1, IPC_CREAT | IPC_EXCL | 0600) >= 0 &&
           mq_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, nullptr) >= 0;
  }));
  EXPECT_EQ(shmget(key, 0, 0), -1);
  EXPECT_EQ(msgget(key, 0), -1);
  EXPECT_EQ(semget(key, 0, 0), -1);
  EXPECT_EQ(mq_open(name.c_str(), O_RDONLY | O_CLOEXEC), -1);
  // What would be there for ever, where it has failed.
  shmctl(shmget(key, 0, 0), IPC_RMID, nullptr);
  msgctl(msgget(key, 0), IPC_RMID, nullptr);
  semctl(semget(key, 0, 0), 0, IPC_RMID);
  mq_unlink(name.c_str());
}

// Libraries of MPI and CUDA ask whether two ranks of a node share it.
TEST_F(PrivateMountsTest, RanksOfOneAttemptThatRunShareMemoryOfSystemV) {
  for (const char* name : {"a", "b"}) ASSERT_TRUE(make_private_places(places(name)));
  const auto key = static_cast<key_t>(getpid());
  const auto finds_it = [&](const std::string& name) {
    return holds_in_a_child(
        [&] { return enter_private_places(places(name)) == 0 && shmget(key, 0, 0) >= 0; });
  };
  // The first one is there until the others, which begin where it began, have looked.
  std::array<int, 2> begun{};
  std::array<int, 2> over{};
  ASSERT_TRUE(pipe2(begun.data(), O_CLOEXEC) == 0 && pipe2(over.data(), O_CLOEXEC) == 0);
  const pid_t first = fork();
  if (first == 0) {
    close(over[1]);
    char made = enter_private_places(places("a")) == 0 && shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600) >= 0;
    _exit(write(begun[1], &made, 1) == 1 && read(over[0], &made, 1) == 0 ? 0 : 1);
  }
  char made = 0;
  EXPECT_TRUE(read(begun[0], &made, 1) == 1 && made == 1);
  EXPECT_TRUE(finds_it("a"));
  EXPECT_FALSE(finds_it("b"));
  for (const int end : {begun[0], begun[1], over[0], over[1]}) close(end);
  int status = -1;
  waitpid(first, &status, 0);
  EXPECT_FALSE(finds_it("a")) << "the last one has gone";
}

TEST_F(PrivateMountsTest, WhereManagersOfUsersListenThereIsNothing) {
  ASSERT_TRUE(make_private_places(places("a")));
  if (!fs::exists("/run/user")) GTEST_SKIP() << "needs /run/user";
  EXPECT_TRUE(holds_in_a_child([&] {
    // As of somebody who is logged in.
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/run/user", "tmpfs", 0, "mode=0755") != 0 || !fs::create_directory("/run/user/54321"))
      return false;
    return enter_private_places(places("a")) == 0 && fs::is_empty("/run/user") &&
           mkdir("/run/user/54321", 0700) != 0;
  }));
}

TEST_F(PrivateMountsTest, WhereTheyCannotBeHadThatIsKnown) {
  EXPECT_TRUE(holds_in_a_child([] { return setuid(54'321) == 0 && !can_have_private_mounts(); }));
}

TEST_F(PrivateMountsTest, WhatSomebodyElseHasPutInTheirPlaceIsRefused) {
  fs::create_directory(folder_ + "/elsewhere");
  fs::create_directory_symlink(folder_ + "/elsewhere", places("a").folder);
  EXPECT_FALSE(make_private_places(places("a")));
  fs::remove(places("a").folder);
  ASSERT_EQ(mkdir(places("a").memory.c_str(), 0777), 0);
  ASSERT_EQ(chown(places("a").memory.c_str(), 54'321, 54'321), 0);
  EXPECT_FALSE(make_private_places(places("a")));
}

TEST(PrivatePlaces, WhatLiesBelowThemIsKnown) {
  EXPECT_TRUE(is_below_private_place("/tmp"));
  EXPECT_TRUE(is_below_private_place("/tmp/x"));
  EXPECT_TRUE(is_below_private_place("/dev/shm/x"));
  EXPECT_FALSE(is_below_private_place("/tmpx"));
  EXPECT_FALSE(is_below_private_place("/var/lib/tutti"));
}

}  // namespace
}  // namespace tutti::rank
