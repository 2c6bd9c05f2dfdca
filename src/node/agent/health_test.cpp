#include "node/agent/health.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "node/agent/no_threads_test.hpp"

namespace tutti::agent {
namespace {

class HealthTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tutti-health-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(HealthTest, AFolderThatIsFineIsWellAndStaysEmpty) {
  EXPECT_EQ(look_at_folder(folder_, false), "");
  EXPECT_EQ(Health(folder_).illness(), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(HealthTest, AFolderThatIsNotThereIsNamed) {
  const std::string gone = folder_ + "/gone";
  EXPECT_EQ(look_at_folder(gone, false),
            "its folder " + gone + " cannot be looked at: No such file or directory");
}

TEST_F(HealthTest, WhatStandsInTheWayOfWritingIsIllAndDoesNotBlock) {
  ASSERT_EQ(::mkfifo((folder_ + "/health").c_str(), 0600), 0);
  EXPECT_TRUE(look_at_folder(folder_, false).starts_with("its folder " + folder_ + " cannot be written"));
}

TEST_F(HealthTest, WithoutAThreadToLookTheNodeIsIllUntilThereIsOne) {
  auto none = std::make_unique<NoThreads>();
  Health health(folder_);
  EXPECT_EQ(health.illness(), "it has no thread to look at its folder with");
  none.reset();
  EXPECT_EQ(health.illness(), "");
}

TEST(Health, ADiskWithoutRoomIsIll) {
  // Always full.
  EXPECT_EQ(look_at_folder("/proc", false),
            "its folder /proc has less than 32 MiB of free space; it takes work again with 64 MiB");
  EXPECT_EQ(look_at_folder("/proc", true), look_at_folder("/proc", false)) << "the cause is the same";
}

}  // namespace
}  // namespace tutti::agent
