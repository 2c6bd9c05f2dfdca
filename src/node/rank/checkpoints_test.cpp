#include "node/rank/checkpoints.hpp"

#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <thread>

#include "base/files/descriptor.hpp"
#include "node/rank/checkpoint_root.hpp"
#include "node/rank/child_test.hpp"
#include "node/rank/folder_test.hpp"

namespace tutti::rank {
namespace {

namespace fs = std::filesystem;

struct CheckpointsTest : FolderTest {
  std::string job_ = path("root/7");
  const Instant later_{std::chrono::seconds(::time(nullptr)) + std::chrono::hours(1)};

  const Account ann_{.name = "ann", .uid = 54'321, .gid = 54'322, .groups = {}, .home = {}, .shell = {}};
  const Account ben_{.name = "ben", .uid = 54'323, .gid = 54'323, .groups = {}, .home = {}, .shell = {}};

  uid_t owner_of(const std::string& name) const { return status_of(name).st_uid; }
  mode_t mode_of(const std::string& name) const { return status_of(name).st_mode & 07777; }
  struct stat status_of(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(::lstat(path(name).c_str(), &status), 0) << name;
    return status;
  }
  static Result<> remove_old(const std::string& root, Instant ended_before) {
    std::string tried_last;
    return remove_old_checkpoints(root, ended_before, tried_last);
  }
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
  EXPECT_TRUE(remove_old(path("root"), later_));
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
  EXPECT_TRUE(remove_old(path("root"), later_));
  EXPECT_TRUE(saved());
  // The mark of an end that an agent of an earlier version, or a late one, has set meanwhile.
  std::ofstream(path("root/.ended/7")) << "";
  EXPECT_TRUE(remove_old(path("root"), later_));
  EXPECT_TRUE(saved());
  EXPECT_TRUE(fs::is_empty(path("root/.ended")));
}

TEST_F(CheckpointsTest, WhatCannotBeRemovedIsTold) {
  ASSERT_TRUE(begin_checkpoints(job_, false));
  save();
  ASSERT_TRUE(end_checkpoints(job_));
  std::ofstream(path("root/.removed")) << "a file";
  const auto removed = remove_old(path("root"), later_);
  ASSERT_FALSE(removed);
  EXPECT_NE(removed.error().text().find(".removed"), std::string::npos) << removed.error().text();
  EXPECT_TRUE(saved());
  fs::remove(path("root/.removed"));
  EXPECT_TRUE(remove_old(path("root"), later_)) << "and it goes the next time";
  EXPECT_FALSE(fs::exists(job_));
}

// One that has a folder of somebody else's in it, as a user may have moved it there.
TEST_F(CheckpointsTest, ThoseThatCannotBeRemovedDoNotKeepTheOthersForEver) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto job = [this](int number) { return path("root/") + std::to_string(number); };
  for (int number = 100; number <= 200; ++number) {
    ASSERT_TRUE(begin_checkpoints(job(number), false, {}, &ann_));
    std::ofstream(job(number) + "/model") << "weights";
    if (number != 200) {
      fs::create_directories(job(number) + "/team/work");
      ASSERT_EQ(chown((job(number) + "/team").c_str(), ben_.uid, ben_.gid), 0);
    }
    ASSERT_TRUE(end_checkpoints(job(number)));
  }
  std::string tried_last;
  EXPECT_FALSE(remove_old_checkpoints(path("root"), later_, tried_last));
  EXPECT_EQ(tried_last, "199");
  EXPECT_FALSE(remove_old_checkpoints(path("root"), later_, tried_last));
  EXPECT_FALSE(fs::exists(job(200)));
  EXPECT_TRUE(fs::exists(path("root/.removed/100/team/work")));
  EXPECT_FALSE(fs::exists(path("root/.removed/100/model")));
}

TEST_F(CheckpointsTest, AFolderThatCannotBeRemovedAtTheEndHasItsMark) {
  ASSERT_TRUE(begin_checkpoints(job_, false));
  if (mount("none", job_.c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "needs the right to mount";
  EXPECT_TRUE(end_checkpoints(job_));
  EXPECT_EQ(umount2(job_.c_str(), MNT_DETACH), 0);
  EXPECT_TRUE(fs::exists(path("root/.ended/7")));
  EXPECT_TRUE(remove_old(path("root"), later_));
  EXPECT_FALSE(fs::exists(job_));
}

// Users may have been able to write there: by links root's files would be theirs, or gone.
TEST_F(CheckpointsTest, LinksInPlaceOfItsMarksAndFoldersLeadNowhere) {
  fs::create_directories(path("root"));
  fs::create_directories(path("elsewhere/8"));
  std::ofstream(path("elsewhere/8/kept")) << "kept";
  for (const std::string kind : {".begun", ".ended", ".removed"})
    fs::create_directory_symlink(path("elsewhere"), path("root/" + kind));
  fs::create_directory_symlink(path("elsewhere/8"), path("root/9"));
  for (const std::string job : {"7", "8", "9"}) {
    static_cast<void>(begin_checkpoints(path("root/" + job), false, {}, &ann_));
    static_cast<void>(end_checkpoints(path("root/" + job)));
    static_cast<void>(remove_old(path("root"), later_));
  }
  EXPECT_FALSE(fs::exists(path("elsewhere/7")));
  EXPECT_TRUE(fs::exists(path("elsewhere/8/kept")));
  EXPECT_EQ(owner_of("elsewhere/8"), geteuid());
}

TEST_F(CheckpointsTest, AFolderIsHandedOverOnceAndSomebodyElsesNever) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (int time = 0; time < 2; ++time) EXPECT_TRUE(begin_checkpoints(job_, false, {}, &ann_).ok());
  EXPECT_EQ(owner_of("root/7"), ann_.uid);
  EXPECT_EQ(mode_of("root/7"), mode_t{0700});
  const auto foreign = begin_checkpoints(job_, false, {}, &ben_);
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code(), ErrorCode::invalid) << "no other node would do better";
  EXPECT_NE(foreign.error().text().find("is somebody else's than the account ben's"), std::string::npos)
      << foreign.error().text();
  EXPECT_EQ(owner_of("root/7"), ann_.uid);
  fs::create_directories(path("root/8/kept"));
  EXPECT_FALSE(begin_checkpoints(path("root/8"), false, {}, &ben_).ok()) << "of whom is what lies in it?";
  EXPECT_EQ(owner_of("root/8"), 0U);
}

// Between two looks at it a rank of its job on another node is given it, and saves something.
TEST_F(CheckpointsTest, AFolderThatAPeerIsGivenMeanwhileIsNotSomebodyElses) {
  ASSERT_TRUE(begin_checkpoints(job_, false));
  // Whoever opens it waits for an answer.
  const files::FileDescriptor asked(fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC));
  const auto opened = FAN_OPEN_PERM | FAN_ONDIR;
  if (fanotify_mark(asked.get(), FAN_MARK_ADD, opened, AT_FDCWD, job_.c_str()) != 0)
    GTEST_SKIP() << "needs the right to hold up others";
  bool is_given = false;
  std::thread rank([&] { is_given = begin_checkpoints(job_, false, {}, &ann_).ok(); });
  fanotify_event_metadata event{};
  EXPECT_EQ(read(asked.get(), &event, sizeof event), static_cast<ssize_t>(sizeof event));
  EXPECT_EQ(chown(job_.c_str(), ann_.uid, ann_.gid), 0);
  save();
  EXPECT_EQ(fanotify_mark(asked.get(), FAN_MARK_REMOVE, opened, AT_FDCWD, job_.c_str()), 0);
  const fanotify_response answer{.fd = event.fd, .response = FAN_ALLOW};
  EXPECT_EQ(write(asked.get(), &answer, sizeof answer), static_cast<ssize_t>(sizeof answer));
  close(event.fd);
  rank.join();
  EXPECT_TRUE(is_given);
}

// ---- where users may write to the folder that the operator has named

struct CheckpointsAmongUsers : CheckpointsTest {
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    job_ = path("base/cluster/7");
    fs::permissions(folder(), fs::perms(0755));
    fs::create_directories(path("base"));
    fs::permissions(path("base"), fs::perms(01777));
    fs::create_directories(path("victim/7"));
    std::ofstream(path("victim/7/kept")) << "kept";
  }
  // Whatever that user does, and what root as root does on a disk on which it is nobody.
  static bool as(uid_t user, const std::function<void()>& act) {
    return holds_in_a_child([&] {
      setfsuid(user);
      act();
      return !testing::Test::HasFailure();
    });
  }
  void age(const std::string& mark) const {
    std::ofstream(path(mark)) << "";
    const timespec then[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path(mark).c_str(), then, 0), 0);
  }
  Result<> remove_old() const {
    return CheckpointsTest::remove_old(path("base/cluster"), now_ - std::chrono::hours(1));
  }

  const Instant now_{std::chrono::seconds(::time(nullptr))};
};

TEST_F(CheckpointsAmongUsers, ALinkInPlaceOfTheFolderOfTheClusterIsRefused) {
  ASSERT_TRUE(as(ann_.uid, [&] { fs::create_directory_symlink(path("victim"), path("base/cluster")); }));
  const auto begun = begin_checkpoints(job_, false, {}, &ann_);
  ASSERT_FALSE(begun.ok());
  EXPECT_NE(begun.error().code(), ErrorCode::invalid) << "it is not the job's doing";
  EXPECT_NE(
      begun.error().text().find(path("base/cluster") + ", for the checkpoints of this cluster, is a link"),
      std::string::npos)
      << begun.error().text();
  EXPECT_FALSE(begin_checkpoints(path("base/cluster/8"), false, {}, &ann_).ok());
  EXPECT_FALSE(end_checkpoints(job_).ok());
  EXPECT_FALSE(remove_old().ok());
  EXPECT_FALSE(last_saved_job(path("base/cluster"), 1000).ok());
  EXPECT_EQ(owner_of("victim/7"), 0U);
  EXPECT_EQ(fs::directory_iterator(path("victim"))->path(), path("victim/7")) << "nothing is made beside it";
  EXPECT_TRUE(fs::exists(path("victim/7/kept")));
}

// He could put anything in its place the next moment.
TEST_F(CheckpointsAmongUsers, AFolderOfTheClusterThatSomebodyHasMadeIsRefused) {
  ASSERT_TRUE(as(ann_.uid, [&] {
    fs::create_directories(path("base/cluster/.ended"));
    fs::permissions(path("base/cluster"), fs::perms(01777));
    age("base/cluster/.ended/7");
  }));
  fs::create_directories(job_ + "/saved");
  const auto begun = begin_checkpoints(job_, false, {}, &ben_);
  ASSERT_FALSE(begun.ok());
  EXPECT_NE(begun.error().text().find("is somebody else's (uid 54321) and not the agent's"),
            std::string::npos)
      << begun.error().text();
  EXPECT_FALSE(remove_old().ok());
  EXPECT_TRUE(fs::exists(job_ + "/saved"));
}

TEST_F(CheckpointsAmongUsers, NobodyMakesFoldersOrMarksBesideThoseOfJobs) {
  ASSERT_TRUE(begin_checkpoints(job_, false, {}, &ann_).ok());
  EXPECT_EQ(owner_of("base/cluster"), 0U);
  EXPECT_EQ(mode_of("base/cluster"), mode_t{0711});
  EXPECT_TRUE(as(ann_.uid, [&] {
    EXPECT_NE(mkdir(path("base/cluster/8").c_str(), 0700), 0) << "the number of a later job";
    std::ofstream(job_ + "/model") << "weights";
  }));
  EXPECT_TRUE(saved());
}

// As operators have made it by hand, for any disk, and as earlier versions have found it.
TEST_F(CheckpointsAmongUsers, AFolderOfRootsThatUsersMayWriteToIsClosedAndTheirMarksAreNotBelieved) {
  fs::create_directories(path("base/cluster"));
  fs::permissions(path("base/cluster"), fs::perms(01777));
  ASSERT_TRUE(as(ann_.uid, [&] { fs::create_directories(path("base/cluster/.ended")); }));
  ASSERT_TRUE(begin_checkpoints(job_, false, {}, &ben_).ok());
  EXPECT_EQ(mode_of("base/cluster"), mode_t{0711});
  save();
  const auto marked = end_checkpoints(job_);
  ASSERT_FALSE(marked.ok());
  EXPECT_NE(marked.error().text().find("nothing in it is believed"), std::string::npos)
      << marked.error().text();
  ASSERT_TRUE(as(ann_.uid, [&] { age("base/cluster/.ended/7"); }));
  EXPECT_FALSE(remove_old().ok());
  EXPECT_TRUE(saved());
  fs::remove_all(path("base/cluster/.ended"));
  ASSERT_TRUE(end_checkpoints(job_));
  EXPECT_TRUE(remove_old()) << "it has just ended";
  EXPECT_TRUE(saved());
  // A folder of marks that was open, too.
  fs::permissions(path("base/cluster/.ended"), fs::perms(0777));
  fs::remove(path("base/cluster/.ended/7"));
  ASSERT_TRUE(as(ann_.uid, [&] { age("base/cluster/.ended/7"); }));
  EXPECT_TRUE(remove_old());
  EXPECT_TRUE(saved());
  EXPECT_EQ(mode_of("base/cluster/.ended"), mode_t{0700});
  fs::remove(path("base/cluster/.ended/7"));
  age("base/cluster/.ended/7");
  EXPECT_TRUE(remove_old());
  EXPECT_FALSE(saved());
}

// Root is nobody there, as on most disks that come over a network (root_squash).
TEST_F(CheckpointsAmongUsers, WhereRootIsNobodyUsersMakeTheirFoldersThemselves) {
  const uid_t nobody = 65'534;
  EXPECT_TRUE(as(nobody, [&] {
    for (const Account* account : {&ann_, &ann_, &ben_}) {
      const std::string job = path("base/cluster/") + (account == &ann_ ? "7" : "8");
      const auto begun = begin_checkpoints(job, false, {}, account);
      ASSERT_TRUE(begun.ok()) << begun.error().text();
      setfsuid(account->uid);
      EXPECT_TRUE(make_own_checkpoints(*begun, job, *account).ok());
      setfsuid(nobody);
    }
    EXPECT_TRUE(fs::exists(path("base/cluster/.begun/7")));
    const auto foreign = begin_checkpoints(job_, false, {}, &ben_);
    ASSERT_FALSE(foreign.ok());
    EXPECT_EQ(foreign.error().code(), ErrorCode::invalid);
  }));
  EXPECT_EQ(owner_of("base/cluster/7"), ann_.uid);
  EXPECT_EQ(mode_of("base/cluster/7"), mode_t{0700});
  EXPECT_EQ(owner_of("base/cluster/8"), ben_.uid);
  EXPECT_EQ(mode_of("base/cluster"), mode_t{01777});
  for (const std::string marks : {"begun", "ended", "removed"}) {
    EXPECT_EQ(owner_of("base/cluster/." + marks), nobody);
    EXPECT_EQ(mode_of("base/cluster/." + marks), mode_t{0700}) << "users find them there already";
  }
}

TEST_F(CheckpointsAmongUsers, WhereRootIsNobodyAFolderThatTheServersRootHasOpenedIsTakenAndOneOfAUserIsNot) {
  fs::create_directories(path("base/cluster"));
  fs::permissions(path("base/cluster"), fs::perms(01777));
  EXPECT_TRUE(as(65'534, [&] {
    const auto begun = begin_checkpoints(job_, false, {}, &ann_);
    ASSERT_TRUE(begun.ok()) << begun.error().text();
    EXPECT_TRUE(fs::exists(path("base/cluster/.begun/7")));
    setfsuid(ben_.uid);
    fs::create_directory(job_);
    setfsuid(ann_.uid);
    EXPECT_FALSE(make_own_checkpoints(*begun, job_, ann_).ok()) << "ben was first";
  }));
  ASSERT_EQ(chown(path("base/cluster").c_str(), ann_.uid, ann_.gid), 0);
  EXPECT_TRUE(as(65'534, [&] { EXPECT_FALSE(begin_checkpoints(job_, false, {}, &ben_).ok()); }));
}

// The operator has named a folder of that user's, who may do with it what he likes anyway.
TEST_F(CheckpointsAmongUsers, WhomTheNamedFolderBelongsToMayHaveMadeThatOfTheCluster) {
  fs::create_directories(path("base/cluster"));
  for (const char* own : {"base", "base/cluster"}) ASSERT_EQ(chown(path(own).c_str(), ann_.uid, ann_.gid), 0);
  EXPECT_TRUE(begin_checkpoints(job_, false, {}, &ben_).ok());
  EXPECT_EQ(owner_of("base/cluster/7"), ben_.uid);
}

TEST_F(CheckpointsAmongUsers, WhoMayPutAFolderInPlaceOfTheNamedOneIsTold) {
  EXPECT_EQ(checkpoints_in_other_hands(path("base")), "");
  EXPECT_EQ(checkpoints_in_other_hands(path("absent")), "");
  fs::permissions(path("base"), fs::perms(0777));
  EXPECT_NE(checkpoints_in_other_hands(path("base")).find("others than root"), std::string::npos);
  fs::permissions(path("base"), fs::perms(01777));
  ASSERT_EQ(chown(folder().c_str(), ann_.uid, ann_.gid), 0);
  EXPECT_NE(checkpoints_in_other_hands(path("base")).find(folder()), std::string::npos);
}

}  // namespace
}  // namespace tutti::rank
