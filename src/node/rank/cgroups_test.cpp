#include "node/rank/cgroups.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "node/rank/folder_test.hpp"

namespace tutti::rank {
namespace {

// Folders stand in for cgroups: the kernel removes them in the same way.
class CgroupsTest : public FolderTest {};

TEST_F(CgroupsTest, WhatARankMadeInsideItsOwnIsRemovedWithIt) {
  for (const char* below : {"a/b", "a/c", "d"})
    std::filesystem::create_directories(path("own/" + std::string(below)));
  EXPECT_EQ(cgroup_tree(path("own")).folders.size(), 5U);
  EXPECT_TRUE(remove_cgroup(path("own")));
  EXPECT_FALSE(std::filesystem::exists(path("own")));
  EXPECT_TRUE(remove_cgroup(path("own"))) << "one that is not there is fine";
}

TEST_F(CgroupsTest, DepthThatNoPathCanNameIsRemovedToo) {
  constexpr int depth = 30;
  const std::string name(200, 'a');
  const std::string before = std::filesystem::current_path();
  std::filesystem::create_directory(path("own"));
  ASSERT_EQ(chdir(path("own").c_str()), 0);
  for (int at = 0; at < depth; ++at) ASSERT_TRUE(mkdir(name.c_str(), 0700) == 0 && chdir(name.c_str()) == 0);
  ASSERT_EQ(chdir(before.c_str()), 0);
  EXPECT_TRUE(remove_cgroup(path("own")));
  EXPECT_FALSE(std::filesystem::exists(path("own")));
}

TEST_F(CgroupsTest, OneAgentFindsItsOwnInAllHierarchiesAndNobodyElses) {
  const auto prefix = cgroup_prefix("n1", folder());
  ASSERT_TRUE(prefix);
  for (const char* made : {"freezer", "memory"})
    std::filesystem::create_directories(path(std::string(made) + "/tutti/" + *prefix + "7.0.1/a"));
  std::filesystem::create_directories(path("cpu/tutti/" + *prefix + "8.0.0"));
  std::filesystem::create_directories(path("cpu/tutti/tutti-n1-1.2-9.0.0"));
  EXPECT_EQ(cgroups_of(*prefix, folder()), (std::vector<std::string>{"7.0.1", "8.0.0"}));
  EXPECT_TRUE(clear_cgroups(*prefix + "7.0.1", folder()));
  EXPECT_EQ(cgroups_of(*prefix, folder()), std::vector<std::string>{"8.0.0"});
  EXPECT_TRUE(sweep_cgroups(
      *prefix, [](const std::string& name) { return name == "8.0.0"; }, 0s, folder()));
  EXPECT_EQ(cgroups_of(*prefix, folder()), std::vector<std::string>{"8.0.0"}) << "it lives on";
  EXPECT_TRUE(sweep_cgroups(
      *prefix, [](const std::string&) { return false; }, 0s, folder()));
  EXPECT_TRUE(cgroups_of(*prefix, folder()).empty());
  EXPECT_TRUE(std::filesystem::exists(path("cpu/tutti/tutti-n1-1.2-9.0.0"))) << "it is another agent's";
  std::filesystem::create_directory(path("other"));
  EXPECT_NE(*cgroup_prefix("n1", path("other")), *prefix);
  EXPECT_FALSE(cgroup_prefix("n1", path("missing")));
}

}  // namespace
}  // namespace tutti::rank
