#include "node/agent/membership.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

class MembershipTest : public testing::Test {
 protected:
  std::string folder_ = testing::TempDir() + "tutti_membership_" + std::to_string(getpid());

  void SetUp() override { std::filesystem::create_directories(folder_ + "/ranks"); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
};

TEST_F(MembershipTest, AFolderHasOneIdentityForEver) {
  const auto made = folder_identity(folder_);
  ASSERT_TRUE(made.ok()) << made.error().text();
  EXPECT_EQ(made->size(), 32U);
  EXPECT_EQ(*folder_identity(folder_), *made);
  std::filesystem::remove(folder_ + "/identity");
  EXPECT_NE(*folder_identity(folder_), *made);
}

TEST_F(MembershipTest, ANewFolderIsOfNoCluster) {
  const auto membership = read_membership(folder_);
  ASSERT_TRUE(membership.ok()) << membership.error().text();
  EXPECT_EQ(*membership, keeper::Membership());
}

TEST_F(MembershipTest, WhatWasWrittenIsReadAndRanksCountToo) {
  ASSERT_TRUE(MembershipNotes(folder_, "").write({"c3d4", 41}).ok());
  EXPECT_EQ(*read_membership(folder_), (keeper::Membership{"c3d4", 41}));
  std::filesystem::create_directory(folder_ + "/ranks/57.0.3");
  EXPECT_EQ(read_membership(folder_)->jobs_seen, 57U);
  std::filesystem::remove(folder_ + "/jobs-seen");
  EXPECT_EQ(read_membership(folder_)->jobs_seen, 57U) << "as after a power cut";
}

TEST_F(MembershipTest, AnotherClustersJobsAreNotCounted) {
  ASSERT_TRUE(MembershipNotes(folder_, "").write({"c3d4", 41}).ok());
  MembershipNotes later(folder_, "c3d4");
  ASSERT_TRUE(later.write_cluster("e5f6").ok());
  EXPECT_EQ(*read_membership(folder_), (keeper::Membership{"e5f6", 0}));
  ASSERT_TRUE(later.write({"e5f6", 2}).ok());
  EXPECT_EQ(*read_membership(folder_), (keeper::Membership{"e5f6", 2}));
}

TEST_F(MembershipTest, ADamagedOneIsNotGuessed) {
  std::ofstream(folder_ + "/cluster") << "../elsewhere\n";
  EXPECT_FALSE(read_membership(folder_).ok());
}

TEST_F(MembershipTest, TheIndicesOfDevicesAreKept) {
  EXPECT_TRUE(read_devices(folder_).empty());
  ASSERT_TRUE(write_devices(folder_, {{"H100", gib(80), "GPU-a"}, {"H100", gib(80), "GPU-b"}}).ok());
  const auto devices = read_devices(folder_);
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1].uuid, "GPU-b");
  EXPECT_TRUE(devices[1].silent) << "until it is found";
}

TEST_F(MembershipTest, RanksGoAsideEachTime) {
  std::filesystem::create_directory(folder_ + "/ranks/1.0.0");
  const auto first = put_ranks_aside(folder_, "c3d4");
  ASSERT_TRUE(first.ok()) << first.error().text();
  EXPECT_EQ(*first, folder_ + "/other-cluster-c3d4");
  EXPECT_TRUE(std::filesystem::exists(*first + "/ranks/1.0.0"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/ranks"));
  const auto second = put_ranks_aside(folder_, "c3d4");
  ASSERT_TRUE(second.ok()) << second.error().text();
  EXPECT_NE(*first, *second);
}

TEST_F(MembershipTest, WhatWasPutAsideIsFoundAndGoesWithItsLastRank) {
  std::filesystem::create_directory(folder_ + "/ranks/1.0.0");
  ASSERT_TRUE(put_ranks_aside(folder_, "c3d4").ok());
  ASSERT_TRUE(put_ranks_aside(folder_, "e5f6").ok());
  const std::string cluster = folder_ + "/other-cluster-c3d4";
  const auto aside = find_aside(folder_);
  EXPECT_EQ(aside.ranks, std::vector<std::string>{cluster + "/ranks/1.0.0"});
  EXPECT_EQ(aside.empty, std::vector<std::string>{folder_ + "/other-cluster-e5f6"});
  forget_aside(folder_, cluster + "/ranks/1.0.0");
  EXPECT_TRUE(std::filesystem::exists(cluster)) << "it is not empty";
  std::filesystem::remove(cluster + "/ranks/1.0.0");
  forget_aside(folder_, cluster + "/ranks/1.0.0");
  EXPECT_FALSE(std::filesystem::exists(cluster));
  // An agent's own folder may be called so, too.
  std::filesystem::create_directories(cluster + "/ranks");
  forget_aside(cluster, cluster + "/ranks/1.0.0");
  EXPECT_TRUE(std::filesystem::exists(cluster + "/ranks"));
}

TEST_F(MembershipTest, ACopyHasTheIdentityAndAnotherPlace) {
  ASSERT_TRUE(folder_identity(folder_).ok());
  const std::string copy = folder_ + "_copy";
  std::filesystem::copy(folder_, copy, std::filesystem::copy_options::recursive);
  EXPECT_EQ(*folder_identity(copy), *folder_identity(folder_));
  EXPECT_NE(place_of(copy), place_of(folder_));
  EXPECT_EQ(place_of(folder_), place_of(folder_));
  EXPECT_GT(place_of(folder_).size(), 30U) << "the names of the host and of its boot";
  std::filesystem::remove_all(copy);
}

}  // namespace
}  // namespace tutti::agent
