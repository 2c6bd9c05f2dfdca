#include "node/agent/attic.hpp"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "node/rank/rank_folder.hpp"

namespace tutti::agent {
namespace {

namespace fs = std::filesystem;

constexpr uid_t nobody = 65534;

class AtticTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "attic." + std::to_string(::getpid());
    fs::create_directories(root_ + "/checkpoints");
  }
  void TearDown() override { fs::remove_all(root_); }

  // A rank's folder with a log of this size.
  std::string rank(const std::string& name, std::size_t kib, const std::string& owner = "") {
    const std::string folder = root_ + "/ranks/" + name;
    fs::create_directories(folder);
    rank::RankSpec spec;
    spec.command = {"true"};
    spec.workdir = "/";
    spec.cgroup = fs::path(folder).filename();
    spec.owner = owner;
    EXPECT_TRUE(rank::write_spec(folder, spec));
    std::ofstream(folder + "/log") << std::string(kib << 10, 'x');
    return folder;
  }
  std::string checkpoints(const std::string& job) {
    const std::string folder = root_ + "/checkpoints/" + job;
    fs::create_directories(folder);
    return folder;
  }
  AtticOptions options() const {
    AtticOptions options;
    options.checkpoints = root_ + "/checkpoints";
    return options;
  }

  std::string root_;
  const Instant now_{1'000'000s};
};

TEST_F(AtticTest, LogsAreKeptByTheirSize) {
  AtticOptions limits = options();
  limits.logs_bytes_max = kib(400);
  AtticShelves shelves(limits);
  const auto first = rank("1.0.0", 200);
  const auto second = rank("2.0.0", 200);
  const auto third = rank("3.0.0", 100);
  for (const auto& folder : {first, second, third}) shelves.put(folder, now_);
  EXPECT_GE(shelves.logs_bytes(), kib(500));
  shelves.tidy(now_);
  EXPECT_FALSE(fs::exists(first)) << "the oldest goes first";
  EXPECT_TRUE(fs::exists(second));
  EXPECT_TRUE(fs::exists(third));
  EXPECT_LE(shelves.logs_bytes(), kib(400));
}

TEST_F(AtticTest, LogsAreKeptByTheirAgeAndTheirNumber) {
  AtticOptions limits = options();
  limits.logs_age_max = 24h;
  limits.logs_ranks_max = 50;
  AtticShelves shelves(limits);
  const auto old = rank("1.0.0", 1);
  const auto fresh = rank("2.0.0", 1);
  shelves.put(old, now_ - 25h);
  shelves.put(fresh, now_ - 23h);
  shelves.tidy(now_);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
  for (std::size_t at = 0; at < limits.logs_ranks_max; ++at) shelves.put(root_ + "/none", now_);
  shelves.tidy(now_);
  EXPECT_EQ(shelves.folders(), limits.logs_ranks_max);
  EXPECT_FALSE(fs::exists(fresh));
}

TEST_F(AtticTest, WhoHasTheMostLosesHisOldestAndNobodyElseDoes) {
  AtticOptions limits = options();
  limits.logs_bytes_max = kib(500);
  limits.logs_ranks_max = 50;
  AtticShelves shelves(limits);
  const auto his = rank("1.0.0", 200, "ann");
  const auto first = rank("2.0.0", 200, "ben");
  const auto second = rank("3.0.0", 200, "ben");
  for (const auto& folder : {his, first, second}) shelves.put(folder, now_);
  shelves.tidy(now_);
  EXPECT_TRUE(fs::exists(his)) << "the oldest of all";
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::exists(second));
  for (std::size_t at = 0; at < limits.logs_ranks_max; ++at)
    shelves.put(root_ + "/none", now_, {"ben", Bytes()});
  shelves.tidy(now_);
  EXPECT_EQ(shelves.folders(), limits.logs_ranks_max);
  EXPECT_TRUE(fs::exists(his));
  EXPECT_FALSE(fs::exists(second));
}

TEST_F(AtticTest, OfAFolderThatItsRankHasFilledTheLogAndTheEndAreKept) {
  const auto folder = rank("1.0.0", 1, "ann");
  std::ofstream(folder + "/log.00000000000000000000") << std::string(200 << 10, 'x');
  for (const char* name : {"exit", "acknowledged", "exit.room"}) std::ofstream(folder + "/" + name) << "0\n";
  fs::create_directories(folder + "/log.d/deeper");
  for (int link = 0; link < 1000; ++link)
    fs::create_hard_link(folder + "/log.00000000000000000000", folder + "/copy" + std::to_string(link));
  AtticShelves shelves(options());
  shelves.put(folder, now_);
  EXPECT_LT(shelves.logs_bytes(), kib(300)) << "a file of many names is one";
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder)) left.insert(entry.path().filename().string());
  EXPECT_EQ(left, (std::set<std::string>{"acknowledged", "exit", "log.00000000000000000000", "spec"}));
  EXPECT_EQ(weigh(folder).owner, "ann");
}

// Rights do not hold for root: in a child that is not.
TEST_F(AtticTest, AFolderThatItsRankTookTheRightsFromIsCountedAndRemoved) {
  AtticOptions limits = options();
  limits.removed = root_ + "/removed";
  limits.logs_bytes_max = kib(100);
  const auto folder = rank("1.0.0", 200, "ann");
  const bool is_root = ::geteuid() == 0;
  for (const std::string& path : {root_, root_ + "/ranks", folder, folder + "/log", folder + "/spec"})
    ASSERT_TRUE(!is_root || ::chown(path.c_str(), nobody, nobody) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if ((is_root && ::setuid(nobody) != 0) || ::chmod(folder.c_str(), 0) != 0) ::_exit(1);
    AtticShelves shelves(limits);
    shelves.put(folder, now_);
    if (shelves.logs_bytes() < kib(200) || weigh(folder).owner != "ann" || ::chmod(folder.c_str(), 0) != 0)
      ::_exit(2);
    shelves.tidy_logs(now_);
    ::_exit(fs::exists(folder) || !fs::is_empty(limits.removed) ? 3 : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(AtticTest, AnEmptyFolderForCheckpointsGoesWithItsJob) {
  const AtticShelves shelves(options());
  const auto empty = checkpoints("7");
  const auto full = checkpoints("8");
  std::ofstream(full + "/model") << "weights";
  shelves.job_ended(sched::JobId(7));
  shelves.job_ended(sched::JobId(8));
  shelves.job_ended(sched::JobId(9));
  EXPECT_FALSE(fs::exists(empty));
  EXPECT_TRUE(fs::exists(full + "/model"));
}

TEST_F(AtticTest, JobsOfTwoClustersHaveTheSameNumbers) {
  AtticOptions limits = options();
  limits.checkpoints_age_max = 24h;
  AtticShelves shelves(limits);
  const auto ours = checkpoints("one/7");
  const auto theirs = checkpoints("two/7");
  for (const auto& folder : {ours, theirs}) std::ofstream(folder + "/model") << "weights";
  shelves.job_ended(sched::JobId(7), "one");
  const Instant later(std::chrono::seconds(::time(nullptr)) + std::chrono::hours(48));
  shelves.tidy_checkpoints(later, "two");
  EXPECT_TRUE(fs::exists(ours + "/model"));
  shelves.tidy_checkpoints(later, "one");
  EXPECT_FALSE(fs::exists(ours));
  EXPECT_TRUE(fs::exists(theirs + "/model"));
}

// The disk is its own: nobody else would ever remove what an earlier cluster's jobs have left.
TEST_F(AtticTest, CheckpointsOfEarlierClustersAgeWhereTheFolderIsItsOwn) {
  AtticOptions limits = options();
  limits.checkpoints_age_max = 24h;
  const AtticShelves sharing(limits);
  limits.own_checkpoints = true;
  const AtticShelves shelves(limits);
  const auto ended = checkpoints("e5f6/7");
  const auto unfinished = checkpoints("e5f6/8");
  const auto in_it = checkpoints("9/7");  // in that of a job, as earlier versions had them
  for (const auto& folder : {ended, unfinished, in_it}) std::ofstream(folder + "/model") << "weights";
  shelves.job_ended(sched::JobId(7), "e5f6");
  shelves.job_ended(sched::JobId(7), "9");
  const Instant later(std::chrono::seconds(::time(nullptr)) + std::chrono::hours(48));
  sharing.tidy_checkpoints(later, "c3d4");
  EXPECT_TRUE(fs::exists(ended + "/model")) << "it may live, with other agents";
  shelves.tidy_checkpoints(later, "c3d4");
  EXPECT_FALSE(fs::exists(ended));
  EXPECT_TRUE(fs::exists(unfinished + "/model")) << "it could go on if its cluster came back";
  EXPECT_TRUE(fs::exists(in_it + "/model"));
}

TEST_F(AtticTest, EachClusterHasItsRoundOfOldCheckpoints) {
  AtticOptions limits = options();
  limits.checkpoints_age_max = 24h;
  limits.own_checkpoints = true;
  const AtticShelves shelves(limits);
  constexpr int jobs = 150;  // more than one round takes
  for (int job = 1; job <= jobs; ++job) {
    for (const char* cluster : {"c3d4", "e5f6"}) {
      std::ofstream(checkpoints(cluster + ("/" + std::to_string(job))) + "/model") << "weights";
      shelves.job_ended(sched::JobId(static_cast<std::uint64_t>(job)), cluster);
    }
  }
  const Instant later(std::chrono::seconds(::time(nullptr)) + std::chrono::hours(48));
  auto tried = shelves.tidy_checkpoints(later, "c3d4");
  EXPECT_EQ(tried.size(), 2U);
  shelves.tidy_checkpoints(later, "c3d4", tried);
  for (const char* cluster : {"c3d4", "e5f6"})
    for (int job = 1; job <= jobs; ++job)
      EXPECT_FALSE(fs::exists(root_ + "/checkpoints/" + cluster + "/" + std::to_string(job)));
}

// Of an earlier cluster, as an agent puts it aside; the wall's clock decides.
class AsideTest : public AtticTest {
 protected:
  std::string aside(const std::string& name, std::size_t kib, Duration ago) {
    const std::string folder = rank("../other-cluster-c3d4/ranks/" + name, kib);
    const auto ended =
        fs::file_time_type::clock::now() - std::chrono::duration_cast<std::chrono::seconds>(ago);
    fs::last_write_time(folder, ended);
    return fs::weakly_canonical(folder).string();
  }
  AtticOptions limits() const {
    AtticOptions chosen = options();
    chosen.folder = root_;
    chosen.removed = root_ + "/removed";
    chosen.logs_age_max = 24h;
    return chosen;
  }
  // Until it holds, or for a minute.
  void go_until(const std::function<bool()>& holds) {
    const auto look = loop_.every(1ms, [&] {
      if (holds()) loop_.stop();
    });
    const auto give_up = loop_.after(60s, [this] { loop_.stop(); });
    loop_.run();
    EXPECT_TRUE(holds());
  }

  net::Loop loop_;
};

TEST_F(AsideTest, RanksOfEarlierClustersAreCountedAndGoByTheirAge) {
  const auto old = aside("1.0.0", 200, 25h);
  const auto fresh = aside("2.0.0", 300, 23h);
  Attic attic(loop_, limits());
  attic.keep_aside();
  go_until([&] { return !fs::exists(old) && attic.kept() >= kib(300) && attic.kept() < kib(400); });
  EXPECT_TRUE(fs::exists(fresh + "/log"));
}

TEST_F(AsideTest, TheyGoWithTheOthersWhereThereIsTooMuch) {
  const auto theirs = aside("1.0.0", 300, 1h);
  AtticOptions small = limits();
  small.logs_bytes_max = kib(400);
  Attic attic(loop_, small);
  attic.keep_aside();
  const auto ours = rank("1.0.0", 200);
  bool is_put = false;
  go_until([&] {
    if (!is_put && attic.kept() >= kib(300)) {
      is_put = true;
      attic.put(ours, Instant(std::chrono::seconds(::time(nullptr))));
    }
    return is_put && !fs::exists(theirs) && attic.kept() >= kib(200) && attic.kept() < kib(300);
  });
  EXPECT_TRUE(fs::exists(ours + "/log"));
}

TEST_F(AsideTest, TheFolderOfAClusterGoesWithTheLastOfItsRanks) {
  aside("1.0.0", 1, 25h);
  aside("1.0.1", 1, 25h);
  const auto kept = rank("7.0.0", 1);
  Attic attic(loop_, limits());
  attic.put(kept, Instant(std::chrono::seconds(::time(nullptr)) - std::chrono::hours(25)));
  attic.keep_aside();
  go_until([&] { return !fs::exists(root_ + "/other-cluster-c3d4") && !fs::exists(kept); });
  EXPECT_TRUE(fs::exists(root_ + "/ranks")) << "that of the present one stays";
}

TEST_F(AsideTest, OneWithoutRanksIsToldToBeRemoved) {
  fs::create_directories(root_ + "/other-cluster-c3d4/ranks/something-else");
  Attic attic(loop_, limits());
  std::string told;
  attic.on_staying([&](const std::string& path) { told += path; });
  attic.keep_aside();
  go_until([&] { return !told.empty(); });
  EXPECT_EQ(told, root_ + "/other-cluster-c3d4");
}

TEST_F(AtticTest, TellsWhichJobOfItsClusterSavedLast) {
  checkpoints("one/7");
  checkpoints("one/12");
  checkpoints("two/30");
  net::Loop loop;
  std::string told;
  Attic attic(loop, options(), [&](const std::string& cluster, std::uint64_t job) {
    told += cluster + " " + std::to_string(job) + "; ";
    loop.stop();
  });
  attic.belong_to("one");
  attic.belong_to("one");
  loop.run();
  EXPECT_EQ(told, "one 12; ");
}

// While the disk of the one is asked, the node goes over to the other.
TEST_F(AtticTest, TellsOfTheClusterThatTheNodeIsOfNow) {
  checkpoints("one/7");
  checkpoints("two/3");
  net::Loop loop;
  std::string told;
  Attic attic(loop, options(), [&](const std::string& cluster, std::uint64_t job) {
    told += cluster + " " + std::to_string(job) + "; ";
    loop.stop();
  });
  attic.belong_to("one");
  attic.belong_to("two");
  loop.run();
  EXPECT_EQ(told, "two 3; ");
}

TEST_F(AtticTest, NothingIsRemovedOnceTheFoldersAreNotItsOwn) {
  AtticOptions limits = options();
  limits.logs_age_max = 24h;
  limits.removed = root_ + "/removed";
  AtticShelves shelves(limits);
  const auto first = rank("1.0.0", 1);
  shelves.put(first, now_ - 25h);
  shelves.tidy_logs(now_);
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::is_empty(limits.removed));
  const auto second = rank("2.0.0", 1);
  shelves.put(second, now_ - 25h);
  shelves.close();
  shelves.tidy_logs(now_);
  EXPECT_TRUE(fs::exists(second));
}

// Something is mounted in it, or its owner changes it meanwhile.
TEST_F(AtticTest, WhatCouldNotBeRemovedIsTold) {
  AtticOptions limits = options();
  limits.logs_age_max = 24h;
  limits.removed = root_ + "/removed";
  AtticShelves shelves(limits);
  const auto folder = rank("1.0.0", 1);
  fs::create_directories(folder + "/disk");
  if (::mount("none", (folder + "/disk").c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "needs the right to mount";
  shelves.put(folder, now_ - 25h);
  shelves.tidy_logs(now_);
  const auto staying = shelves.take_staying();
  ASSERT_EQ(staying.size(), 1U);
  EXPECT_EQ(::umount2((staying[0] + "/disk").c_str(), MNT_DETACH), 0);
  EXPECT_TRUE(shelves.take_staying().empty()) << "once";
}

TEST_F(AtticTest, CheckpointsGoOnlyIfThatIsWantedAndTheirJobHasEnded) {
  const auto ended = checkpoints("7");
  const auto unfinished = checkpoints("8");
  const auto somebodys = checkpoints("notes");
  for (const auto& folder : {ended, unfinished, somebodys}) std::ofstream(folder + "/model") << "weights";
  const Instant later(std::chrono::seconds(::time(nullptr)) + std::chrono::hours(24 * 365));
  AtticShelves keeping(options());
  keeping.job_ended(sched::JobId(7));
  keeping.tidy(later);
  EXPECT_TRUE(fs::exists(ended + "/model")) << "checkpoints are kept unless somebody says otherwise";
  AtticOptions limits = options();
  limits.checkpoints_age_max = 24h;
  AtticShelves shelves(limits);
  shelves.tidy(later);
  EXPECT_FALSE(fs::exists(ended));
  EXPECT_TRUE(fs::exists(unfinished + "/model"));
  EXPECT_TRUE(fs::exists(somebodys + "/model"));
}

}  // namespace
}  // namespace tutti::agent
