#include "node/agent/moved_folder.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "node/agent/folder_lock.hpp"
#include "node/agent/stand_in_test.hpp"

namespace tutti::agent {
namespace {

namespace fs = std::filesystem;

class MovedFolderTest : public testing::Test {
 protected:
  MovedFolderTest() {
    std::string path = testing::TempDir() + "tutti-moved-XXXXXX";
    root_ = mkdtemp(path.data());
    fs::create_directories(root_ + "/own");
    fs::create_directories(root_ + "/other/ranks/7.0.0");
  }
  ~MovedFolderTest() override { fs::remove_all(root_); }

  std::string own() const { return root_ + "/own"; }
  std::string other() const { return root_ + "/other"; }
  // As others see it: who has a lock does not see his own.
  bool is_locked() const {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(FolderLock::holder_of(own()) ? 0 : 1);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status == 0;
  }

  std::string root_;
};

// Whoever calls himself a shim chooses what lies beside it: a look at it would cost this agent its folder.
TEST_F(MovedFolderTest, ALockThatIsThisAgentsOwnByAnotherNameStaysItsOwn) {
  const auto lock = FolderLock::take(own());
  ASSERT_TRUE(lock.ok()) << lock.error().text();
  const StandIn shim(other() + "/ranks/7.0.0");
  const std::string pid = std::to_string(shim.shim().pid);
  for (const bool linked : {true, false}) {
    if (linked) {
      fs::create_symlink(own() + "/lock", other() + "/lock");
    } else {
      fs::create_hard_link(own() + "/lock", other() + "/lock");
    }
    bool told = false;
    for (const std::string& text : ranks_without_agent(own()))
      told = told || text.find("`kill " + pid + "`") != std::string::npos;
    EXPECT_TRUE(told) << "nobody answers for it";
    EXPECT_TRUE(is_locked());
    fs::remove(other() + "/lock");
  }
}

// Whether nothing or another folder is in its place: their devices would be given out a second time.
TEST_F(MovedFolderTest, RanksWhoseAgentsFolderWasRemovedKeepTheNextFromBeginning) {
  const StandIn shim(other() + "/ranks/7.0.0");
  const std::string advice = "`kill " + std::to_string(shim.shim().pid) + "`";
  fs::remove_all(other());
  for (const bool replaced : {false, true}) {
    if (replaced) fs::create_directories(other() + "/ranks/7.0.0");
    const auto checked = check_no_ranks_elsewhere(other());
    ASSERT_FALSE(checked);
    EXPECT_NE(checked.error().text().find("it was removed"), std::string::npos) << checked.error().text();
    EXPECT_NE(checked.error().remedy().find(advice), std::string::npos) << checked.error().remedy();
    bool told = false;
    for (const std::string& text : ranks_without_agent(own()))
      told = told || (text.find(other()) != std::string::npos && text.find(advice) != std::string::npos);
    EXPECT_TRUE(told) << "agents of other folders say so";
  }
}

// He is no shim, whatever he is called and whichever folder he holds open.
TEST_F(MovedFolderTest, SomebodyElseWhoCallsHimselfAShimKeepsNobodyFromBeginning) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  fs::permissions(root_, fs::perms(0755));
  for (const bool gone : {true, false}) {
    fs::create_directories(other() + "/ranks/7.0.0");
    const StandIn forged(other() + "/ranks/7.0.0", "", false, 54'321);
    fs::rename(other(), root_ + "/away");
    if (gone) fs::remove_all(root_ + "/away");
    if (!gone) std::ofstream(root_ + "/away/identity") << "0123456789abcdef\n";
    const auto checked = check_no_ranks_elsewhere(other());
    EXPECT_TRUE(checked.ok()) << checked.error().text();
    const std::string pid = std::to_string(forged.shim().pid);
    for (const std::string& text : ranks_without_agent(own()))
      EXPECT_EQ(text.find("`kill " + pid + "`"), std::string::npos) << text;
  }
}

// That is in the hands of ranks, and keeps no agent from beginning.
TEST_F(MovedFolderTest, ARankThatRemovesOrMovesItsOwnFolderKeepsNobodyFromBeginning) {
  const StandIn shim(other() + "/ranks/7.0.0");
  EXPECT_TRUE(check_no_ranks_elsewhere(other()));
  fs::create_directories(root_ + "/a/b");
  fs::rename(other() + "/ranks/7.0.0", root_ + "/a/b/7.0.0");
  EXPECT_TRUE(check_no_ranks_elsewhere(other())) << "moved";
  fs::rename(root_ + "/a/b/7.0.0", other() + "/ranks/7.0.0");
  fs::remove(other() + "/ranks/7.0.0");
  EXPECT_TRUE(check_no_ranks_elsewhere(other())) << "removed";
}

// To where it looks as one of an agent's that was moved, or removed.
TEST_F(MovedFolderTest, ARankThatMovesItsOwnFolderIntoOneAsAnAgentsKeepsNobodyFromBeginning) {
  const StandIn shim(other() + "/ranks/7.0.0", rank::folder_place(other()));
  const std::string forged = root_ + "/forged";
  fs::create_directories(forged + "/ranks");
  std::ofstream(forged + "/identity") << "0123456789abcdef\n";
  fs::rename(other() + "/ranks/7.0.0", forged + "/ranks/7.0.0");
  EXPECT_TRUE(check_no_ranks_elsewhere(other())) << "moved";
  fs::remove_all(forged);
  EXPECT_TRUE(check_no_ranks_elsewhere(other())) << "removed";
}

TEST_F(MovedFolderTest, RanksWhoseShimsTellTheirAgentsFolderKeepTheNextFromBeginningInItsPlace) {
  const StandIn shim(other() + "/ranks/7.0.0", rank::folder_place(other()));
  std::ofstream(other() + "/identity") << "0123456789abcdef\n";
  EXPECT_TRUE(check_no_ranks_elsewhere(other()));
  fs::rename(other(), root_ + "/away");
  EXPECT_FALSE(check_no_ranks_elsewhere(other())) << "moved";
  fs::remove_all(root_ + "/away");
  EXPECT_FALSE(check_no_ranks_elsewhere(other())) << "removed";
}

TEST_F(MovedFolderTest, ARankThatMovesItsOwnFolderAndRemovesThatPlaceKeepsNobodyFromBeginning) {
  const StandIn shim(other() + "/ranks/7.0.0");
  fs::create_directories(root_ + "/a/b");
  fs::rename(other() + "/ranks/7.0.0", root_ + "/a/b/7.0.0");
  fs::remove_all(root_ + "/a");
  EXPECT_TRUE(check_no_ranks_elsewhere(other()));
}

}  // namespace
}  // namespace tutti::agent
