#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "base/clock/clock.hpp"
#include "node/agent/rank_start.hpp"
#include "node/agent/shim_processes.hpp"
#include "node/agent/stand_in_test.hpp"
#include "node/rank/child_test.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/private_mounts.hpp"
#include "node/rank/rank_folder.hpp"
#include "node/rank/shim.hpp"

namespace tutti::agent {
namespace {

class AdoptionTest : public testing::Test {
 protected:
  AdoptionTest() {
    std::string path = testing::TempDir() + "tutti-adoption-XXXXXX";
    folder_ = mkdtemp(path.data());
    std::filesystem::create_symlink("/bin/true", folder_ + "/tutti");
    shipped_.emplace(net::Target(), "", folder_);
    attic_.emplace(loop_, AtticOptions{.checkpoints = folder_ + "/checkpoints"});
    processes_.emplace(loop_,
                       ProcessOptions{.node = "n1",
                                      .folder = folder_,
                                      .checkpoints = folder_ + "/checkpoints",
                                      .tutti_program = folder_ + "/tutti",
                                      .open_files = {.before = 0, .most = 100}},
                       *shipped_, *attic_,
                       ShimProcesses::Calls{.started = [](const auto&, const auto&) {},
                                            .exited =
                                                [this](const RankKey&, const cluster::RankStatus& status) {
                                                  exited_ = status;
                                                  loop_.stop();
                                                },
                                            .prepared =
                                                [this](auto, auto, const Result<std::string>& folder,
                                                       keeper::Hindrance hindrance) {
                                                  prepared_ = folder ? *folder : folder.error().text();
                                                  hindrance_ = hindrance;
                                                  loop_.stop();
                                                },
                                            .seen = [](const auto&, auto) {},
                                            .went_aside = [](const auto&) {}});
  }
  ~AdoptionTest() override {
    processes_.reset();
    attic_.reset();
    shipped_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string rank_folder() const {
    std::string path = folder_ + "/ranks/" + key_.text();
    std::filesystem::create_directories(path);
    return path;
  }

  void start_rank() {
    wire::StartRanks attempt;
    attempt.job = key_.job;
    attempt.command = {"true"};
    attempt.ranks.push_back({0, {}, ""});
    processes_->start(attempt, "/");
    loop_.run();
  }

  const RankKey key_{cluster::JobId(7), 0, 0};
  std::string folder_;
  net::Loop loop_;
  std::optional<Shipped> shipped_;
  std::optional<Attic> attic_;
  std::optional<ShimProcesses> processes_;
  std::optional<cluster::RankStatus> exited_;
  std::string prepared_;
  std::optional<keeper::Hindrance> hindrance_;
};

// Alone it would be more than this agent can watch, whoever ends: it is given back with the reason.
TEST_F(AdoptionTest, AGangThatIsMoreThanCanBeWatchedIsGivenBackAtOnce) {
  EXPECT_EQ(processes_->watch_max(), 50);
  wire::StartRanks gang;
  gang.job = cluster::JobId(7);
  for (std::int32_t rank = 0; rank < 50; ++rank) gang.ranks.push_back({rank, {}, ""});
  EXPECT_FALSE(processes_->has_room(gang));
  processes_->prepare(gang);
  loop_.run();
  EXPECT_NE(prepared_.find("may not open enough files to watch 50 ranks"), std::string::npos) << prepared_;
  EXPECT_EQ(hindrance_, keeper::Hindrance::job) << "nobody is to blame, and it is not tried here again";
  gang.ranks.pop_back();
  EXPECT_TRUE(processes_->has_room(gang)) << "with its port these are all files";
}

// What is on record lies in the rank's folder: one that lives on may have put it there. Here nothing holds
// it, as on a machine without cgroups.
TEST_F(AdoptionTest, AnEndOnRecordOfARankThatLivesIsItsEndOnceItHasBeenKilled) {
  const StandIn left(rank_folder());
  ASSERT_TRUE(rank::write_shim(rank_folder(), left.shim()));
  ASSERT_TRUE(rank::write_exit(rank_folder(), {.exit_code = 3, .detail = ""}));
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  if (found->at(key_).state != cluster::RankState::exited) loop_.run();
  EXPECT_FALSE(left.rank_lives());
  EXPECT_EQ(exited_.value_or(found->at(key_)).exit_code, 3);
}

// So it does, and takes away which shim it has.
TEST_F(AdoptionTest, AnEndOnRecordOfARankThatHidesItsShimDoesNotCountWhileThatLives) {
  StandIn left(rank_folder());
  ASSERT_TRUE(rank::write_exit(rank_folder(), {.exit_code = 3, .detail = ""}));
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_EQ(found->at(key_).state, cluster::RankState::started);
  left.kill_shim();
  loop_.run();
  ASSERT_TRUE(exited_);
  EXPECT_EQ(exited_->exit_code, 3);
}

// The note of its shim is the rank's, too: it names the shim of somebody else here.
TEST_F(AdoptionTest, AForgedNoteOfItsShimKillsNobodyElse) {
  const StandIn other(folder_ + "/ranks/8.0.0");
  ASSERT_TRUE(rank::write_shim(rank_folder(), other.shim()));
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  loop_.run();
  ASSERT_TRUE(exited_);
  EXPECT_TRUE(other.rank_lives());
  EXPECT_TRUE(rank::is_alive(other.shim()));
}

// The session of a shim that has gone is nobody's to kill where cgroups hold ranks.
TEST_F(AdoptionTest, AForgedNoteOfAShimThatHasGoneKillsNobodyElse) {
  const rank::Hold trial("tutti-adoption-" + std::to_string(::getpid()));
  if (!trial.make()) GTEST_SKIP() << "no cgroup can be made here";
  EXPECT_TRUE(trial.remove());
  StandIn other(folder_ + "/ranks/8.0.0");
  ASSERT_TRUE(rank::write_shim(rank_folder(), other.shim()));
  other.kill_shim();
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  if (found->at(key_).state != cluster::RankState::exited) loop_.run();
  EXPECT_TRUE(other.rank_lives());
}

// Nor does one that names a process which has gone hide it, with or without a mark that all is over: nothing
// holds it here.
TEST_F(AdoptionTest, ANoteOfAShimThatHasGoneHidesNoRank) {
  const StandIn left(rank_folder());
  for (const bool acknowledged : {false, true}) {
    if (acknowledged) std::ofstream(acknowledged_mark(rank_folder())) << "";
    rank::ShimProcess gone = left.shim();
    ++gone.start_time;
    ASSERT_TRUE(rank::write_shim(rank_folder(), gone));
    const auto found = processes_->adopt();
    ASSERT_TRUE(found) << found.error().text();
    ASSERT_TRUE(found->contains(key_)) << acknowledged;
    EXPECT_EQ(found->at(key_).state, cluster::RankState::started) << acknowledged;
    EXPECT_TRUE(rank::is_alive(left.shim()));
  }
}

// Nor does one that names a process of the rank, which has the words of a shim: the rank would be said to
// have ended with it.
TEST_F(AdoptionTest, ANoteThatNamesAProcessOfTheRankHidesNoShim) {
  const StandIn left(rank_folder(), "", true);
  ASSERT_TRUE(rank::write_shim(rank_folder(), left.rank()));
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_EQ(found->at(key_).state, cluster::RankState::started);
  processes_->end(key_, true);
  loop_.run();
  EXPECT_TRUE(exited_);
  EXPECT_FALSE(left.rank_lives());
  EXPECT_FALSE(rank::is_alive(left.shim()));
}

// Out of this folder, where the shim still began.
TEST_F(AdoptionTest, ARankThatHasMovedItsFolderAwayIsEnded) {
  const StandIn left(rank_folder(), rank::folder_place(folder_));
  std::filesystem::create_directories(folder_ + "/elsewhere/ranks");
  std::filesystem::rename(rank_folder(), folder_ + "/elsewhere/ranks/" + key_.text());
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_TRUE(found->empty());
  EXPECT_FALSE(left.rank_lives());
  EXPECT_FALSE(rank::is_alive(left.shim()));
}

// No folder tells of it, and without cgroups nothing but its shim does.
TEST_F(AdoptionTest, ARankWhoseFolderWasRemovedIsEnded) {
  const StandIn left(rank_folder());
  std::filesystem::remove_all(folder_ + "/ranks");
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_TRUE(found->empty());
  EXPECT_FALSE(left.rank_lives());
  EXPECT_FALSE(rank::is_alive(left.shim()));
}

// It has the words of one of this agent's, and is of another folder.
TEST_F(AdoptionTest, ARankOfAnotherFolderOfThisNameIsLeftAlone) {
  const StandIn other(rank_folder());
  std::filesystem::create_directory(folder_ + "/elsewhere");
  std::filesystem::rename(folder_ + "/ranks", folder_ + "/elsewhere/ranks");
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_TRUE(other.rank_lives());
  EXPECT_TRUE(rank::is_alive(other.shim()));
}

// Here /bin/true is in its place, as something else may be in the middle of an upgrade: it succeeds, and the
// rank has not run.
TEST_F(AdoptionTest, AShimThatEndsBeforeItBeginsIsNoEndOfItsRank) {
  ASSERT_TRUE(processes_->adopt());
  start_rank();
  ASSERT_TRUE(exited_);
  EXPECT_EQ(exited_->exit_code, 126) << exited_->detail;
  EXPECT_TRUE(exited_->node_fault);
  EXPECT_TRUE(exited_->no_room) << "a rank can make it seem so";
  EXPECT_FALSE(exited_->vanished);
}

// Whoever kills it, the kernel for want of memory perhaps, says nothing about its program: the job may come
// back here.
TEST_F(AdoptionTest, AShimThatIsKilledBeforeItBeginsWasKilled) {
  ASSERT_TRUE(processes_->adopt());
  std::filesystem::remove(folder_ + "/tutti");
  std::ofstream(folder_ + "/tutti") << "#!/bin/sh\nkill -9 $$\n";
  std::filesystem::permissions(folder_ + "/tutti", std::filesystem::perms::owner_all);
  start_rank();
  ASSERT_TRUE(exited_);
  EXPECT_EQ(exited_->exit_code, 137) << exited_->detail;
  EXPECT_TRUE(exited_->vanished);
  EXPECT_FALSE(exited_->node_fault || exited_->no_room) << exited_->detail;
}

// The disk may be full when the shim has said who it is: the rank has not run, and its job goes elsewhere.
TEST_F(AdoptionTest, AShimThatCouldNotBeginItsRankIsNoEndOfIt) {
  ASSERT_TRUE(processes_->adopt());
  std::filesystem::remove(folder_ + "/tutti");
  std::ofstream(folder_ + "/tutti") << "#!/bin/sh\n: >$2/shim; exit " << rank::exit_code_not_begun << "\n";
  std::filesystem::permissions(folder_ + "/tutti", std::filesystem::perms::owner_all);
  start_rank();
  ASSERT_TRUE(exited_);
  EXPECT_EQ(exited_->exit_code, 126) << exited_->detail;
  EXPECT_TRUE(exited_->node_fault && exited_->no_room) << exited_->detail;
  EXPECT_FALSE(exited_->vanished);
}

// `docker run`, `timeout` and others end with that code, too: what has run does not run again.
TEST_F(AdoptionTest, ARankThatEndsWithTheCodeOfAShimThatDidNotBeginHasRun) {
  ASSERT_TRUE(processes_->adopt());
  std::filesystem::remove(folder_ + "/tutti");
  std::ofstream(folder_ + "/tutti") << "#!/bin/sh\n: >$2/shim; echo tutti-end-125 >/proc/$$/comm; exit "
                                    << rank::exit_code_not_begun << "\n";
  std::filesystem::permissions(folder_ + "/tutti", std::filesystem::perms::owner_all);
  start_rank();
  ASSERT_TRUE(exited_);
  EXPECT_EQ(exited_->exit_code, rank::exit_code_not_begun) << exited_->detail;
  EXPECT_FALSE(exited_->node_fault);
}

// It would be charged for nothing.
TEST_F(AdoptionTest, ARankThatForgesItsEndHasNotEndedLongAgo) {
  StandIn left(rank_folder());
  ASSERT_TRUE(rank::write_shim(rank_folder(), left.shim()));
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_EQ(found->at(key_).state, cluster::RankState::started);
  ASSERT_TRUE(rank::write_exit(rank_folder(), {.exit_code = 0, .detail = ""}));
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * 365);
  std::filesystem::last_write_time(rank_folder() + "/exit", long_ago);
  left.kill_shim();
  loop_.run();
  ASSERT_TRUE(exited_);
  EXPECT_EQ(exited_->exit_code, 0);
  EXPECT_LT(processes_->ended_ago(key_), 1h);
}

// So does one whose agent was away.
TEST_F(AdoptionTest, ARankThatForgedItsEndWhileItsAgentWasAwayHasNotEndedLongAgo) {
  const StandIn left(rank_folder());
  ASSERT_TRUE(rank::write_shim(rank_folder(), left.shim()));
  ASSERT_TRUE(rank::write_exit(rank_folder(), {.exit_code = 0, .detail = ""}));
  std::this_thread::sleep_for(50ms);  // so that the record is older than what follows
  const auto begun = now_on_the_wall();
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  if (found->at(key_).state != cluster::RankState::exited) loop_.run();
  EXPECT_FALSE(left.rank_lives());
  EXPECT_LE(processes_->ended_ago(key_), now_on_the_wall() - begun);
}

// As in a container.
TEST_F(AdoptionTest, WhereNoCgroupsCanBeMadeTheAgentSaysWhatIsOutOfItsReach) {
  if (!rank::can_have_private_mounts()) GTEST_SKIP() << "needs mount namespaces";
  const auto says_so = [&](bool with_cgroups) {
    testing::internal::CaptureStderr();
    const bool begins = rank::holds_in_a_child([&] {
      return ::unshare(CLONE_NEWNS) == 0 &&
             ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
             (with_cgroups || ::mount("none", "/sys/fs/cgroup", "tmpfs", MS_RDONLY, nullptr) == 0) &&
             processes_->adopt().ok();
    });
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(begins) << told;
    return told.find(
               "may not make cgroups: processes of a rank that start sessions of their own are out of") !=
           std::string::npos;
  };
  EXPECT_TRUE(says_so(false));
  const rank::Hold trial("tutti-adoption-" + std::to_string(::getpid()));
  if (!trial.make()) return;
  trial.remove();
  EXPECT_FALSE(says_so(true));
}

// Nothing of it has ever run, and nobody is to blame.
TEST_F(AdoptionTest, AStartThatWasCutShortCostsNothing) {
  rank_folder();
  const auto found = processes_->adopt();
  ASSERT_TRUE(found) << found.error().text();
  loop_.run();
  ASSERT_TRUE(exited_);
  EXPECT_TRUE(exited_->node_fault);
  EXPECT_TRUE(exited_->blameless);
  EXPECT_FALSE(exited_->vanished);
  EXPECT_TRUE(rank::is_given_up(rank_folder())) << "and it will not start any more";
}

}  // namespace
}  // namespace tutti::agent
