#include "node/agent/isolation.hpp"

#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "node/rank/child_test.hpp"
#include "node/rank/private_mounts.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

// Where everybody may go, and not below /tmp.
class IsolationRulesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    std::string path = "/var/lib/tutti-rules-XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    above_ = path;
    ASSERT_EQ(::chmod(above_.c_str(), 0755), 0);
    fs::create_directory(folder());
  }
  ~IsolationRulesTest() override {
    if (above_.empty()) return;
    for (const std::string& attempt : rules_ ? rules_->all_places() : std::vector<std::string>())
      for (const std::string& path : rules_->places_of(attempt)) fs::remove_all(path);
    if (rules_ && !rules_->memory_folder().empty()) fs::remove_all(rules_->memory_folder());
    fs::remove_all(above_);
  }
  std::string folder() const { return above_ + "/agent"; }
  Result<> begin(const std::string& checkpoints = "") {
    rules_ = std::make_unique<IsolationRules>(IsolationRules::Options{
        folder(), checkpoints.empty() ? folder() + "/checkpoints" : checkpoints, users_});
    return rules_->begin("tutti-rules-" + std::to_string(::getpid()));
  }

  std::string above_;
  std::string users_;
  std::unique_ptr<IsolationRules> rules_;
};

TEST_F(IsolationRulesTest, WhatAnEarlierAgentLeftOpenIsClosed) {
  fs::create_directories(folder() + "/ranks/7.0.0");
  fs::create_directories(folder() + "/ranks/8.0.0");
  fs::create_directories(folder() + "/blobs");
  fs::create_directories(folder() + "/work/7.0");
  std::ofstream(folder() + "/identity") << "x";
  fs::create_directory_symlink("/etc", folder() + "/work/link");
  ASSERT_TRUE(
      rank::make_said_folder(folder() + "/ranks/8.0.0", {.name = "ada", .uid = 54'321, .gid = 54'321}));
  const mode_t etc = mode_of("/etc");
  const auto begun = begin();
  ASSERT_TRUE(begun) << begun.error().text();
  EXPECT_EQ(mode_of(folder()), mode_t{0711});
  EXPECT_EQ(mode_of(folder() + "/ranks"), mode_t{0711});
  EXPECT_EQ(mode_of(folder() + "/work"), mode_t{0711});
  EXPECT_EQ(mode_of(folder() + "/ranks/7.0.0"), mode_t{0700});
  EXPECT_EQ(mode_of(folder() + "/ranks/8.0.0"), mode_t{0711}) << "its rank goes through";
  EXPECT_EQ(mode_of(folder() + "/blobs"), mode_t{0700});
  EXPECT_EQ(mode_of(folder() + "/work/7.0"), mode_t{0700});
  EXPECT_EQ(mode_of(folder() + "/places"), mode_t{0700});
  EXPECT_EQ(mode_of(folder() + "/identity"), mode_t{0600});
  EXPECT_EQ(mode_of("/etc"), etc);
}

TEST_F(IsolationRulesTest, AFolderThatRanksCouldNotReachIsRefused) {
  ASSERT_EQ(::chmod(above_.c_str(), 0700), 0);
  const auto begun = begin();
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code(), ErrorCode::invalid);
  EXPECT_NE(begun.error().text().find("may not pass through " + above_), std::string::npos);
  ASSERT_EQ(::chmod(above_.c_str(), 0755), 0);
  ASSERT_EQ(::chown(above_.c_str(), 54'321, 54'321), 0);
  EXPECT_FALSE(begin()) << "somebody else could put his own in its place";
  ASSERT_EQ(::chown(above_.c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod(above_.c_str(), 0777), 0);
  EXPECT_FALSE(begin());
  ASSERT_EQ(::chmod(above_.c_str(), 0755), 0);
  EXPECT_FALSE(begin("/tmp/checkpoints")) << "each job has a /tmp of its own";
}

TEST_F(IsolationRulesTest, WhoMayNotBeIsTheJobsEndAndWhoIsNotHereMayBeElsewhere) {
  ASSERT_TRUE(begin());
  const auto root = rules_->prepare("root", "7.0");
  EXPECT_FALSE(root.isolation);
  EXPECT_EQ(root.why.code(), ErrorCode::invalid);
  const auto nobody = rules_->prepare("tutti-nobody-knows-this-one", "7.0");
  EXPECT_FALSE(nobody.isolation);
  EXPECT_EQ(nobody.why.code(), ErrorCode::failed);
  EXPECT_EQ(nobody.hindrance, keeper::Hindrance::job);
  EXPECT_NE(nobody.why.text().find("no account tutti-nobody-knows-this-one"), std::string::npos);
  EXPECT_TRUE(rules_->all_places().empty()) << "nothing is made for who does not start";
}

// Another's job has filled it, which is no fault of the node's.
TEST_F(IsolationRulesTest, WhereMemoryTakesNoMoreNamesTheNextJobIsTriedAgain) {
  const std::string passwd = above_ + "/passwd";
  std::ofstream(passwd) << "root:x:0:0::/root:/bin/sh\ntutti-ada:x:54321:54321::/:/bin/sh\n";
  const auto hindered_with = [&](const char* options) {
    return rank::holds_in_a_child([&] {
      if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount(passwd.c_str(), "/etc/passwd", nullptr, MS_BIND, nullptr) != 0 ||
          ::mount("none", "/dev/shm", "tmpfs", 0, options) != 0 || !begin())
        return true;
      const auto prepared = rules_->prepare("tutti-ada", "7.0");
      return !prepared.isolation && prepared.hindrance == keeper::Hindrance::passing;
    });
  };
  if (!rank::can_have_private_mounts()) GTEST_SKIP() << "needs mount namespaces";
  EXPECT_TRUE(hindered_with("mode=1777,nr_inodes=2"));
  EXPECT_FALSE(hindered_with("mode=1777"));
}

// As in a container.
TEST_F(IsolationRulesTest, WhatThisNodeMayNotDoItLacks) {
  EXPECT_TRUE(rank::holds_in_a_child([&] {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
    if (::syscall(SYS_capget, &header, sets) != 0) return false;
    for (auto* set : {&sets[0].effective, &sets[0].permitted}) *set &= ~(1U << CAP_SYS_ADMIN);
    if (::syscall(SYS_capset, &header, sets) != 0 || !begin()) return false;
    return rules_->lacks_in_a_line().find("this agent may make no namespaces") != std::string::npos;
  }));
}

TEST_F(IsolationRulesTest, AFileOfUsersThatIsWrongKeepsTheAgentFromStarting) {
  users_ = above_ + "/users";
  std::ofstream(users_) << "ada\n";
  const auto begun = begin();
  ASSERT_FALSE(begun);
  EXPECT_NE(begun.error().text().find("--users"), std::string::npos) << begun.error().text();
}

}  // namespace
}  // namespace tutti::agent
