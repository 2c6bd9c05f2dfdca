#include "node/rank/output_copy.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "node/rank/child_test.hpp"
#include "node/rank/folder_test.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/process.hpp"
#include "node/rank/told_end.hpp"

namespace tutti::rank {
namespace {

constexpr int writer_patience_ms = 20'000;

class OutputCopyTest : public FolderTest {
 protected:
  std::string content() const {
    std::stringstream text;
    text << std::ifstream(path("copy")).rdbuf();
    return text.str();
  }
  // What a disk does to the writer that does not answer.
  void hang() {
    ASSERT_EQ(kill(copy_.writer(), SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(copy_.writer(), &status, WUNTRACED | static_cast<int>(__WCLONE)), copy_.writer());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void wait_for_its_end() {
    while (copy_.is_being_written()) {
      pollfd word{.fd = copy_.words(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(poll(&word, 1, writer_patience_ms), 1);
      copy_.go_on();
    }
  }

  OutputCopy copy_;
};

TEST_F(OutputCopyTest, HasAllWhenItsWriterHasEnded) {
  copy_.start(path("copy"));
  copy_.add("one\n");
  copy_.add("two\n");
  copy_.close();
  wait_for_its_end();
  EXPECT_EQ(content(), "one\ntwo\n");
  EXPECT_EQ(copy_.cut(), "");
  EXPECT_EQ(copy_.take_note(), "");
}

// The shim knows by it that all processes of its rank have gone.
TEST_F(OutputCopyTest, ItsWriterIsNotAmongThoseThatAreWaitedFor) {
  copy_.start(path("copy"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(process_name(copy_.writer()), copy_writer_name);
  const auto writer = read_process(copy_.writer());
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->exit_signal, 0) << "which tells it from processes of ranks";
}

TEST_F(OutputCopyTest, WhatIsNotTakenIsLeftAndTold) {
  copy_.start(path("copy"));
  hang();
  copy_.add(std::string(std::size_t{1} << 20, 'x'));
  EXPECT_TRUE(copy_.is_full());
  EXPECT_LE(copy_.deadline(), OutputCopy::Clock::now() + copy_patience);
  copy_.leave();
  EXPECT_FALSE(copy_.is_full()) << "nobody waits for it any more";
  EXPECT_EQ(copy_.cut(), "the copy of its log in " + path("copy") + " is cut: its disk does not answer");
  EXPECT_NE(copy_.take_note(), "");
  EXPECT_EQ(copy_.take_note(), "") << "once";
  wait_for_its_end();
}

// As many as may be left behind: processes that are called as writers are.
class Forged {
 public:
  // Of this user, or of that one; held by a cgroup, or not.
  explicit Forged(uid_t user = geteuid(), const Hold* hold = nullptr) {
    for (int writer = 0; writer < 64; ++writer) {
      const pid_t pid = hold != nullptr ? hold->fork_under().pid : fork();
      if (pid == 0) {
        if (user != geteuid() && setuid(user) != 0) _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set_process_name(copy_writer_name);
        for (;;) pause();
      }
      pids_.push_back(pid);
    }
    const auto are_named = [&] {
      return std::all_of(pids_.begin(), pids_.end(),
                         [](pid_t pid) { return process_name(pid) == copy_writer_name; });
    };
    while (!are_named()) std::this_thread::yield();
  }
  Forged(const Forged&) = delete;
  Forged& operator=(const Forged&) = delete;
  ~Forged() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> pids_;
};

Account account_of(uid_t user) {
  return {.name = "somebody", .uid = user, .gid = user, .groups = {user}, .home = "/", .shell = "/bin/sh"};
}
const Account& his_account() {
  static const Account account = account_of(23'456);
  return account;
}

// Whoever has so many that nothing ends gets no more: each of his jobs would leave another one.
// Of an account of its own where it can be: others make copies beside this.
TEST_F(OutputCopyTest, WhoHasLeftTooManyBehindGetsNoCopyAndEndsAtOnce) {
  const bool is_root = geteuid() == 0;
  const Account account = account_of(is_root ? 23'457 : geteuid());
  const Forged left(account.uid);
  copy_.start(path("copy"), is_root ? &account : nullptr);
  EXPECT_FALSE(copy_.is_being_written());
  EXPECT_NE(copy_.cut().find("too many copies of logs"), std::string::npos) << copy_.cut();
  EXPECT_FALSE(std::filesystem::exists(path("copy")));
  copy_.add("more");
  EXPECT_FALSE(copy_.is_full());
}

TEST_F(OutputCopyTest, WhatOneHasLeftBehindCostsNobodyElseHis) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Forged left(his_account().uid);
  copy_.start(path("copy"));
  EXPECT_EQ(copy_.cut(), "");
  copy_.close();
  wait_for_its_end();
  OutputCopy his;
  his.start(path("his"), &his_account());
  EXPECT_NE(his.cut().find("too many copies of logs"), std::string::npos) << his.cut();
}

// Their shim looks after them, and has told how its rank ended.
TEST_F(OutputCopyTest, WritersWhoseShimIsThereAreNotLeftBehind) {
  const std::string before = process_name(getpid());
  {
    const Forged writers;
    tell_end(0);
    copy_.start(path("copy"));
    set_process_name(before);
  }
  EXPECT_EQ(copy_.cut(), "");
  copy_.close();
  wait_for_its_end();
}

// Else its user would get no copy any more.
TEST_F(OutputCopyTest, WhoIsHeldByTheCgroupOfARankIsNoWriter) {
  const Hold hold("tutti-copies-" + std::to_string(getpid()));
  if (!hold.make()) GTEST_SKIP() << "no cgroup can be made here";
  {
    const Forged forged(geteuid(), &hold);
    copy_.start(path("copy"));
  }
  EXPECT_TRUE(hold.remove());
  EXPECT_EQ(copy_.cut(), "");
  copy_.close();
  wait_for_its_end();
}

// What keeps a rank from devices, and its memory bounded, does not keep its writer.
class CopyOfAnAccount : public OutputCopyTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    std::string made = "/var/lib/tutti-copy-XXXXXX";
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    own_ = made;
    ASSERT_EQ(chown(own_.c_str(), his_account().uid, his_account().gid), 0);
  }
  ~CopyOfAnAccount() override {
    if (!own_.empty()) std::filesystem::remove_all(own_);
  }
  // Why it does not have all of it.
  static std::string cut_of(const std::string& target) {
    OutputCopy copy;
    copy.start(target, &his_account());
    copy.add("said\n");
    copy.close();
    while (copy.is_being_written()) {
      pollfd word{.fd = copy.words(), .events = POLLIN, .revents = 0};
      EXPECT_EQ(poll(&word, 1, writer_patience_ms), 1);
      copy.go_on();
    }
    return copy.cut();
  }
  static std::string text_in(const std::string& target) {
    std::stringstream text;
    text << std::ifstream(target).rdbuf();
    return text.str();
  }

  std::string own_;
};

TEST_F(CopyOfAnAccount, IsWrittenToFilesAndPipesOnADisk) {
  EXPECT_EQ(cut_of(own_ + "/copy"), "");
  EXPECT_EQ(cut_of(own_ + "/copy"), "") << "and to one that is there";
  EXPECT_EQ(text_in(own_ + "/copy"), "said\nsaid\n");
  std::filesystem::create_symlink(own_ + "/copy", own_ + "/link");
  EXPECT_EQ(cut_of(own_ + "/link"), "");
  ASSERT_EQ(mkfifo((own_ + "/pipe").c_str(), 0666), 0);
  ASSERT_EQ(chmod((own_ + "/pipe").c_str(), 0666), 0);
  const files::FileDescriptor reader(open((own_ + "/pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(cut_of(own_ + "/pipe"), "");
  char said[8] = {};
  EXPECT_EQ(read(reader.get(), said, sizeof said), 5);
  std::filesystem::create_symlink(own_ + "/nowhere", own_ + "/to-nowhere");
  EXPECT_NE(cut_of(own_ + "/to-nowhere"), "");
}

TEST_F(CopyOfAnAccount, GoesIntoNoDeviceAndNoMemory) {
  ASSERT_EQ(mknod((own_ + "/device").c_str(), S_IFCHR | 0666, makedev(1, 3)), 0);
  ASSERT_EQ(chmod((own_ + "/device").c_str(), 0666), 0);
  std::filesystem::create_symlink("/dev/full", own_ + "/link");
  const std::string name = "tutti-copy-" + std::to_string(getpid());
  std::ofstream("/dev/shm/" + name) << "as it was";
  ASSERT_EQ(chmod(("/dev/shm/" + name).c_str(), 0666), 0);
  for (const std::string& target :
       {own_ + "/device", own_ + "/link", std::string("/dev/null"), "/dev/shm/" + name,
        "/dev/shm/" + name + "-new", "/tmp/" + name, "/var/tmp/" + name})
    EXPECT_NE(cut_of(target).find("only files and named pipes on a disk are written"), std::string::npos)
        << target;
  EXPECT_EQ(text_in("/dev/shm/" + name), "as it was");
  for (const std::string& made : {"/dev/shm/" + name + "-new", "/tmp/" + name, "/var/tmp/" + name})
    EXPECT_FALSE(std::filesystem::exists(made)) << made;
  std::filesystem::remove("/dev/shm/" + name);
  // A disk in memory elsewhere.
  EXPECT_TRUE(holds_in_a_child([&] {
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("none", own_.c_str(), "tmpfs", 0, "mode=0777") == 0 && !cut_of(own_ + "/copy").empty() &&
           !std::filesystem::exists(own_ + "/copy");
  }));
}

TEST_F(OutputCopyTest, AWriterThatWasKilledIsTold) {
  copy_.start(path("copy"));
  kill(copy_.writer(), SIGKILL);
  wait_for_its_end();
  EXPECT_NE(copy_.cut().find("was killed"), std::string::npos) << copy_.cut();
  copy_.add("more");
  EXPECT_FALSE(copy_.is_full());
}

TEST_F(OutputCopyTest, WithoutAFileNothingHappens) {
  copy_.add("more");
  copy_.go_on();
  EXPECT_FALSE(copy_.is_full());
  EXPECT_FALSE(copy_.is_being_written());
  EXPECT_EQ(copy_.cut(), "");
}

}  // namespace
}  // namespace tutti::rank
