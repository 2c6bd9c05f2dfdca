#include "node/agent/left_rank.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "node/agent/rank_start.hpp"
#include "node/agent/stand_in_test.hpp"
#include "node/rank/process.hpp"

namespace tutti::agent {
namespace {

namespace fs = std::filesystem;

const keeper::RankKey first_left{cluster::JobId(1), 0, 0};
const keeper::RankKey second_left{cluster::JobId(2), 0, 0};

TEST(LeftRanks, OneThatDoesNotComeIsNotWaitedFor) {
  LeftRanks ranks;
  ranks.put(first_left, {});
  const auto read = ranks.wait(2, 10ms);
  EXPECT_TRUE(read.contains(first_left));
  EXPECT_FALSE(read.contains(second_left));
}

TEST(LeftRanks, AllThatComeAreWaitedFor) {
  LeftRanks ranks;
  std::thread reader([&] {
    ranks.put(second_left, {});
    ranks.put(first_left, {});
  });
  EXPECT_EQ(ranks.wait(2, 60s).size(), 2U);
  reader.join();
}

class LeftRankTest : public testing::Test {
 protected:
  LeftRankTest() {
    std::string path = testing::TempDir() + "tutti-left-XXXXXX";
    folder_ = mkdtemp(path.data());
  }
  ~LeftRankTest() override { fs::remove_all(folder_); }

  void alive() {
    shim_.emplace(folder_);
    ASSERT_TRUE(rank::write_shim(folder_, shim_->shim()));
  }
  void acknowledged() { std::ofstream(acknowledged_mark(folder_)) << ""; }

  std::string folder_;
  std::optional<StandIn> shim_;
};

TEST_F(LeftRankTest, OneThatLivesRunsWhateverItsMarksSay) {
  alive();
  acknowledged();
  ASSERT_TRUE(rank::mark_stopped(folder_));
  const auto left = read_left(folder_, "");
  EXPECT_TRUE(left.runs);
  EXPECT_FALSE(left.over);
  EXPECT_FALSE(rank::is_stopped(folder_)) << "it is shut down no more";
}

TEST_F(LeftRankTest, OneWhoseEndIsAcknowledgedIsOver) {
  acknowledged();
  EXPECT_TRUE(read_left(folder_, "").over);
  EXPECT_FALSE(rank::is_given_up(folder_));
}

TEST_F(LeftRankTest, OneThatHasNotStartedWillNot) {
  const auto left = read_left(folder_, "");
  EXPECT_FALSE(left.runs);
  EXPECT_FALSE(left.over);
  EXPECT_FALSE(left.end);
  EXPECT_TRUE(rank::is_given_up(folder_));
}

// A folder of a later version, or one that its rank has spoilt.
TEST_F(LeftRankTest, ASpecificationThatCannotBeReadTellsNoGracePeriod) {
  alive();
  std::ofstream(folder_ + "/spec") << "tutti rank 99\n";
  const auto left = read_left(folder_, "");
  EXPECT_TRUE(left.runs);
  EXPECT_FALSE(left.grace) << "which is not the same as none";
}

// Whoever is taken for its shim is ended with it.
TEST_F(LeftRankTest, ANoteOfItsShimThatNamesAnotherProcessTellsOfNone) {
  const auto self = rank::read_process(getpid());
  ASSERT_TRUE(self);
  ASSERT_TRUE(rank::write_shim(folder_, {.pid = getpid(), .start_time = self->start_time}));
  const auto left = read_left(folder_, "");
  EXPECT_FALSE(left.shim_known);
  EXPECT_FALSE(left.runs);
  acknowledged();
  EXPECT_TRUE(read_left(folder_, "").over);
}

TEST_F(LeftRankTest, ANoteOfItsShimThatCannotBeReadTellsOfNone) {
  std::ofstream(folder_ + "/shim") << "garbage";
  const auto left = read_left(folder_, "");
  EXPECT_FALSE(left.shim_known);
  EXPECT_FALSE(left.runs);
}

}  // namespace
}  // namespace tutti::agent
