#include "learn/train/ownership.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <future>

#include "learn/checkpoint/folder.hpp"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// Quick, and yet with room for a machine that is busy with something else.
constexpr OwnershipOptions quick{.beat_every = 20ms, .dead_after = 3s};

class OwnershipTest : public testing::Test {
 protected:
  OwnershipTest() {
    std::string path = (fs::temp_directory_path() / "ownership_test_XXXXXX").string();
    run_ = mkdtemp(path.data());
  }
  ~OwnershipTest() override { fs::remove_all(run_); }

  // Leaves the file as a process does that is killed.
  void die(const checkpoint::Fence& fence) {
    const checkpoint::Owner owner{.fence = fence, .node = "n1", .pid = 1, .since_s = 1, .token = "dead"};
    ASSERT_TRUE(checkpoint::become_owner(run_, owner).value());
  }

  std::string run_;
};

TEST_F(OwnershipTest, IsOfOneAtATimeAndTheSecondIsRefusedByName) {
  auto first = Ownership::take(run_, {0, 12, "east"}, "n1", quick);
  ASSERT_TRUE(first) << first.error().text();
  const auto second = Ownership::take(run_, {0, 13, "east"}, "n2", quick);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::invalid) << "no attempt after it would fare better";
  EXPECT_TRUE(second.error().text().starts_with(
      run_ + " : job 12 (attempt 0, on node n1) trains in this folder since 20"))
      << second.error().text();
  EXPECT_FALSE(Ownership::take(run_, {0, 12, "west"}, "n2", quick)) << "another cluster's job 12";
  EXPECT_FALSE(Ownership::take(run_, {}, "n2", quick)) << "nobody's process";
  EXPECT_FALSE((*first)->lost());
  first->reset();
  EXPECT_TRUE(Ownership::take(run_, {0, 13, "east"}, "n2", quick)) << "it was given back";
  EXPECT_TRUE(fs::is_empty(run_));
}

TEST_F(OwnershipTest, GoesToTheNextAttemptAtOnceAndTheOldOneHearsOfIt) {
  auto old = Ownership::take(run_, {3, 12, "east"}, "n1", quick);
  ASSERT_TRUE(old);
  auto next = Ownership::take(run_, {4, 12, "east"}, "n2", {.beat_every = 20ms, .dead_after = 1h});
  ASSERT_TRUE(next) << next.error().text();
  while (!(*old)->lost()) std::this_thread::yield();
  EXPECT_EQ((*old)->lost()->text(), run_ + " : job 12 (attempt 4, on node n2) has taken this folder over");
  EXPECT_EQ((*old)->lost()->code(), ErrorCode::failed) << "its job goes on";
  old->reset();
  EXPECT_EQ(checkpoint::owner_of(run_).value()->owner.fence.attempt, 4) << "what is not its own stays";
  const auto late = Ownership::take(run_, {3, 12, "east"}, "n1", quick);
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().text().find("is a newer attempt"), std::string::npos) << late.error().text();
}

TEST_F(OwnershipTest, OfADeadOneIsTakenWhenItHasNotBeatenForLong) {
  die({0, 12, "east"});
  const auto begin = std::chrono::steady_clock::now();
  const auto taken = Ownership::take(run_, {0, 13, "east"}, "n2", {.beat_every = 20ms, .dead_after = 300ms});
  ASSERT_TRUE(taken) << taken.error().text();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms);
}

// The next attempt came, was done, and gave the folder back while this one stood still.
TEST_F(OwnershipTest, IsNotTakenAgainByOneThatThawsWhenTheNextIsDone) {
  const std::string checkpoints = run_ + "/checkpoints";
  ASSERT_TRUE(checkpoint::claim(checkpoints, {2, 12, "east"})) << "the one before";
  auto old = Ownership::take(run_, {3, 12, "east"}, "n1", quick);
  ASSERT_TRUE(old) << old.error().text();
  fs::remove(run_ + "/owner");
  while (!fs::exists(run_ + "/owner")) {
    ASSERT_FALSE((*old)->lost()) << "what was claimed before it came takes nothing from it";
    std::this_thread::yield();
  }
  ASSERT_TRUE(checkpoint::claim(checkpoints, {4, 12, "east"}));
  fs::remove(run_ + "/owner");
  while (!(*old)->lost()) std::this_thread::yield();
  EXPECT_EQ((*old)->lost()->text(), run_ + " : job 12, attempt 4 has taken this folder over");
  EXPECT_FALSE(fs::exists(run_ + "/owner"));
}

TEST_F(OwnershipTest, IsTakenByForceAtOnce) {
  die({0, 12, "east"});
  EXPECT_TRUE(Ownership::take(run_, {0, 13, "east"}, "n2", {.dead_after = 1h, .take_over = true}));
}

TEST_F(OwnershipTest, ThatAnotherJobHasTakenIsLostForGood) {
  auto first = Ownership::take(run_, {0, 12, "east"}, "n1", quick);
  ASSERT_TRUE(first) << first.error().text();
  const auto second =
      Ownership::take(run_, {0, 13, "east"}, "n2", {.beat_every = 20ms, .dead_after = 1h, .take_over = true});
  ASSERT_TRUE(second) << second.error().text();
  while (!(*first)->lost()) std::this_thread::yield();
  EXPECT_EQ((*first)->lost()->code(), ErrorCode::invalid) << "its next attempt would take it back";
}

// A job that was once told to take the folder over is started again, while a newer one trains there.
TEST_F(OwnershipTest, IsNotTakenByForceFromANewerOneThatLives) {
  const auto newer = Ownership::take(run_, {0, 13, "east"}, "n2", quick);
  ASSERT_TRUE(newer) << newer.error().text();
  const auto older =
      Ownership::take(run_, {1, 12, "east"}, "n1", {.beat_every = 20ms, .dead_after = 1h, .take_over = true});
  ASSERT_FALSE(older);
  EXPECT_EQ(older.error().code(), ErrorCode::invalid);
  EXPECT_NE(older.error().text().find("job 13 (attempt 0, on node n2) trains in this folder since"),
            std::string::npos)
      << older.error().text();
  EXPECT_EQ(checkpoint::owner_of(run_).value()->owner.fence.job, 13);
  EXPECT_FALSE((*newer)->lost());
}

TEST_F(OwnershipTest, IsNotTakenFromANewerOneThatHasClaimedTheCheckpointsAndIsAway) {
  ASSERT_TRUE(checkpoint::claim(run_ + "/checkpoints", {0, 13, "east"}));
  const OwnershipOptions force{.beat_every = 20ms, .dead_after = 200ms, .take_over = true};
  const auto refused = [&] {
    const auto older = Ownership::take(run_, {1, 12, "east"}, "n1", force);
    ASSERT_FALSE(older);
    EXPECT_EQ(older.error().code(), ErrorCode::invalid);
    EXPECT_NE(older.error().text().find("job 12, attempt 1 is fenced: job 13, attempt 0 has claimed"),
              std::string::npos)
        << older.error().text();
  };
  refused();
  EXPECT_FALSE(fs::exists(run_ + "/owner")) << "it was never its own";
  die({0, 13, "east"});
  refused();
  EXPECT_EQ(checkpoint::owner_of(run_).value()->owner.fence.job, 13)
      << "its next attempt finds all as it was";
  EXPECT_TRUE(Ownership::take(run_, {0, 14, "east"}, "n1", force)) << "who comes after it may";
}

// The cluster's store is an older copy: a job that is submitted now has a lower number than the one before.
TEST_F(OwnershipTest, OfAKnownOneWithAHigherNumberIsTakenWhenThatIsGone) {
  ASSERT_TRUE(checkpoint::claim(run_ + "/checkpoints", {2, 13, "east"}));
  OwnershipOptions knows{.beat_every = 20ms, .dead_after = 300ms, .take_over = true};
  knows.over = checkpoint::Fence(0, 13, "east");
  for (const std::int64_t job : {5, 13}) {
    auto lives = Ownership::take(run_, {3, 13, "east"}, "n1", quick);
    ASSERT_TRUE(lives) << lives.error().text();
    const auto refused = Ownership::take(run_, {0, job, "east"}, "n2", knows);
    ASSERT_FALSE(refused) << "it lives";
    EXPECT_NE(refused.error().text().find("job 13 (attempt 3, on node n1) trains in this folder"),
              std::string::npos)
        << refused.error().text();
    lives->reset();
    EXPECT_TRUE(Ownership::take(run_, {0, job, "east"}, "n2", knows)) << "it was given back";
    die({3, 13, "east"});
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(Ownership::take(run_, {0, job, "east"}, "n2", knows)) << "it is dead";
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms) << "not before it was seen to be";
  }
}

// The disk of the run is unmounted: what it was mounted on is nobody's.
TEST_F(OwnershipTest, IsNotMadeAgainInAFolderThatCameIntoItsPlace) {
  const std::string run = run_ + "/run";
  fs::create_directory(run);
  auto owner = Ownership::take(run, {0, 12, "east"}, "n1", quick);
  ASSERT_TRUE(owner) << owner.error().text();
  fs::create_directory(run_ + "/bare");
  fs::rename(run, run_ + "/away");
  fs::rename(run_ + "/bare", run);
  const auto beat = [&] { return checkpoint::owner_of(run_ + "/away").value()->beat_ns; };
  for (int beats = 0; beats < 5; ++beats) {
    const auto before = beat();
    while (beat() == before && fs::is_empty(run)) std::this_thread::yield();
  }
  EXPECT_TRUE(fs::is_empty(run));
  EXPECT_FALSE((*owner)->lost());
  fs::remove(run);
  fs::rename(run_ + "/away", run);
  owner->reset();
  EXPECT_FALSE(fs::exists(run + "/owner")) << "it is given back where it lies again";
}

TEST_F(OwnershipTest, OfADeadOneGoesToOneOfMany) {
  die({0, 1, "east"});
  std::vector<std::future<Result<std::unique_ptr<Ownership>>>> all;
  for (std::int64_t job = 2; job < 10; ++job) {
    all.push_back(std::async(std::launch::async, [this, job] {
      return Ownership::take(run_, {0, job, "east"}, "n", {.beat_every = 20ms, .dead_after = 500ms});
    }));
  }
  std::vector<std::unique_ptr<Ownership>> owners;
  for (auto& one : all) {
    if (auto taken = one.get()) owners.push_back(std::move(*taken));
  }
  // Who was overtaken in the race hears of it at its next beat.
  while (owners.size() > 1) {
    std::erase_if(owners, [](const auto& owner) { return owner->lost().has_value(); });
    std::this_thread::yield();
  }
  EXPECT_EQ(owners.size(), 1U);
}

}  // namespace
}  // namespace tutti::train
