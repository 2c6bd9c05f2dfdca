#include "node/rank/checkpoints.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/files/descriptor.hpp"
#include "node/rank/folder_test.hpp"

namespace tutti::rank {
namespace {

namespace fs = std::filesystem;

struct CheckpointsTest : FolderTest {
  std::string job_ = path("root/7");
  const Instant later_{std::chrono::seconds(::time(nullptr)) + std::chrono::hours(1)};

  void save() const { std::ofstream(job_ + "/model") << "weights"; }
  bool saved() const { return fs::exists(job_ + "/model"); }
};

TEST_F(CheckpointsTest, OnAnotherDiskWhatAnEarlierAttemptSavedIsMissed) {
  ASSERT_TRUE(begin_checkpoints(job_, false));
  save();
  EXPECT_TRUE(begin_checkpoints(job_, true));
  fs::rename(path("root"), path("unmounted"));
  const auto begun = begin_checkpoints(job_, true);
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().text(),
            "what job 7 has saved is not in " + path("root") + " on this node: is its disk mounted?");
  EXPECT_FALSE(fs::exists(path("root"))) << "nothing is made there";
  EXPECT_TRUE(begin_checkpoints(path("root/8"), false)) << "a job that begins finds nothing anywhere";
  EXPECT_FALSE(begin_checkpoints(job_, true).ok()) << "others on the wrong disk change nothing";
}

// A rank may have been started just before the home of its cluster was removed.
TEST_F(CheckpointsTest, AHomeThatWasRemovedIsNotMadeAgain) {
  const std::string rank = path("home/nodes/n1/ranks/7.0.0");
  const std::string job = path("home/checkpoints/cluster/7");
  fs::create_directories(rank);
  const files::FileDescriptor open_folder(::open(rank.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const fs::path held = "/proc/self/fd/" + std::to_string(open_folder.get());
  EXPECT_TRUE(begin_checkpoints(job, false, held));
  EXPECT_TRUE(fs::exists(job)) << "nothing was removed";
  fs::remove_all(path("home"));
  EXPECT_TRUE(begin_checkpoints(job, false, held));
  EXPECT_FALSE(fs::exists(path("home")));
  fs::create_directories(path("root"));
  EXPECT_TRUE(begin_checkpoints(job_, false, held));
  EXPECT_TRUE(fs::exists(job_)) << "this one was elsewhere, and is there";
}

TEST_F(CheckpointsTest, TellsTheLastJobThatHasAFolder) {
  const auto absent = last_saved_job(path("root"), 1000);
  ASSERT_TRUE(absent.ok());
  EXPECT_FALSE(absent->has_value()) << "its disk may not be mounted";
  ASSERT_TRUE(begin_checkpoints(job_, false));
  ASSERT_TRUE(begin_checkpoints(path("root/12"), false));
  for (const char* none : {"root/1001", "root/99x", "root/099", "root/99999999999999999999999"})
    fs::create_directories(path(none));
  const auto last = last_saved_job(path("root"), 1000);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(*last, 12U);
  std::ofstream(path("file")) << "";
  EXPECT_FALSE(last_saved_job(path("file"), 1000).ok());
}

TEST_F(CheckpointsTest, AJobMayRemoveItsFolderAndOneOfAnEarlierVersionHasNoMark) {
  ASSERT_TRUE(begin_checkpoints(job_, false));
  fs::remove_all(job_);
  EXPECT_TRUE(begin_checkpoints(job_, true));
  EXPECT_TRUE(fs::exists(job_));
  fs::remove_all(path("root/.begun"));
  EXPECT_TRUE(begin_checkpoints(job_, true));
}

TEST_F(CheckpointsTest, AFolderHasNotChangedBeforeSomethingIsSavedInIt) {
  const auto changed = [this] {
    struct stat status {};
    EXPECT_EQ(::stat(job_.c_str(), &status), 0);
    return status.st_mtim.tv_sec;
  };
  ASSERT_TRUE(begin_checkpoints(job_, false));
  EXPECT_EQ(changed(), 0);
  save();
  EXPECT_GT(changed(), 0);
  ASSERT_TRUE(begin_checkpoints(job_, true));
  EXPECT_GT(changed(), 0) << "it had saved";
}

TEST_F(CheckpointsTest, OfAJobThatHasEndedNothingIsLeftButWhatItSaved) {
  ASSERT_TRUE(begin_checkpoints(job_, false));
  ASSERT_TRUE(end_checkpoints(job_));
  EXPECT_FALSE(fs::exists(job_));
  EXPECT_TRUE(fs::is_empty(path("root/.begun")));
  ASSERT_TRUE(begin_checkpoints(job_, false));
  save();
  ASSERT_TRUE(end_checkpoints(job_));
  EXPECT_TRUE(saved());
  EXPECT_TRUE(fs::is_empty(path("root/.begun")));
  EXPECT_TRUE(remove_old_checkpoints(path("root"), later_));
  EXPECT_FALSE(fs::exists(job_));
  EXPECT_TRUE(fs::is_empty(path("root/.ended")));
  EXPECT_TRUE(fs::is_empty(path("root/.removed")));
}

TEST_F(CheckpointsTest, AJobThatHasBegunAgainKeepsItsFolder) {
  ASSERT_TRUE(begin_checkpoints(job_, false));
  save();
  ASSERT_TRUE(end_checkpoints(job_));
  ASSERT_TRUE(begin_checkpoints(job_, true));
  EXPECT_TRUE(fs::is_empty(path("root/.ended"))) << "its end is taken back";
  EXPECT_TRUE(remove_old_checkpoints(path("root"), later_));
  EXPECT_TRUE(saved());
  // The mark of an end that an agent of an earlier version, or a late one, has set meanwhile.
  std::ofstream(path("root/.ended/7")) << "";
  EXPECT_TRUE(remove_old_checkpoints(path("root"), later_));
  EXPECT_TRUE(saved());
  EXPECT_TRUE(fs::is_empty(path("root/.ended")));
}

TEST_F(CheckpointsTest, WhatCannotBeRemovedIsTold) {
  ASSERT_TRUE(begin_checkpoints(job_, false));
  save();
  ASSERT_TRUE(end_checkpoints(job_));
  std::ofstream(path("root/.removed")) << "a file";
  const auto removed = remove_old_checkpoints(path("root"), later_);
  ASSERT_FALSE(removed);
  EXPECT_NE(removed.error().text().find(".removed"), std::string::npos) << removed.error().text();
  EXPECT_TRUE(saved());
  fs::remove(path("root/.removed"));
  EXPECT_TRUE(remove_old_checkpoints(path("root"), later_)) << "and it goes the next time";
  EXPECT_FALSE(fs::exists(job_));
}

// Where root is nobody on a shared disk, those who have jobs may write above the folders of jobs.
TEST_F(CheckpointsTest, LinksInPlaceOfItsMarksAndFoldersLeadNowhere) {
  fs::create_directories(path("root"));
  fs::create_directories(path("elsewhere/8"));
  std::ofstream(path("elsewhere/8/kept")) << "kept";
  for (const std::string kind : {".begun", ".ended", ".removed"})
    fs::create_directory_symlink(path("elsewhere"), path("root/" + kind));
  fs::create_directory_symlink(path("elsewhere"), path("root/7"));
  const Account account{.name = "ann", .uid = 54'321, .gid = 54'321, .groups = {}, .home = {}, .shell = {}};
  for (const std::string job : {"7", "8"}) {
    EXPECT_TRUE(begin_checkpoints(path("root/" + job), false));
    static_cast<void>(end_checkpoints(path("root/" + job)));
    static_cast<void>(remove_old_checkpoints(path("root"), later_));
  }
  EXPECT_EQ(hand_over_checkpoints(path("root/7"), account), EPERM);
  EXPECT_FALSE(fs::exists(path("elsewhere/7")));
  EXPECT_TRUE(fs::exists(path("elsewhere/8/kept")));
}

TEST_F(CheckpointsTest, AFolderIsHandedOverOnceAndSomebodyElsesNever) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  Account account{.name = "ann", .uid = 54'321, .gid = 54'322, .groups = {}, .home = {}, .shell = {}};
  EXPECT_EQ(hand_over_checkpoints(path("root/7"), account), 0) << "it is not there";
  ASSERT_TRUE(begin_checkpoints(path("root/7"), false));
  EXPECT_EQ(hand_over_checkpoints(path("root/7"), account), 0);
  EXPECT_EQ(hand_over_checkpoints(path("root/7"), account), 0);
  struct stat status {};
  ASSERT_EQ(::stat(path("root/7").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, account.uid);
  EXPECT_EQ(status.st_gid, account.gid);
  EXPECT_EQ(status.st_mode & 07777, mode_t{0700});
  account.uid = 54'323;
  EXPECT_EQ(hand_over_checkpoints(path("root/7"), account), EPERM);
}

}  // namespace
}  // namespace tutti::rank
