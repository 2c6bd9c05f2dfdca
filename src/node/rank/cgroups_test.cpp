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
  const std::vector<RankCgroup> second{{*prefix + "8.0.0", "8.0.0"}};
  EXPECT_EQ(cgroups_of(*prefix, folder()),
            (std::vector<RankCgroup>{{*prefix + "7.0.1", "7.0.1"}, second.front()}));
  EXPECT_TRUE(clear_cgroups(*prefix + "7.0.1", folder()));
  EXPECT_EQ(cgroups_of(*prefix, folder()), second);
  EXPECT_TRUE(sweep_cgroups(
      *prefix, [](const std::string& name) { return name == "8.0.0"; }, 0s, folder()));
  EXPECT_EQ(cgroups_of(*prefix, folder()), second) << "it lives on";
  EXPECT_TRUE(sweep_cgroups(
      *prefix, [](const std::string&) { return false; }, 0s, folder()));
  EXPECT_TRUE(cgroups_of(*prefix, folder()).empty());
  EXPECT_TRUE(std::filesystem::exists(path("cpu/tutti/tutti-n1-1.2-9.0.0"))) << "it is another agent's";
  std::filesystem::create_directory(path("other"));
  EXPECT_NE(*cgroup_prefix("n1", path("other")), *prefix);
  EXPECT_FALSE(cgroup_prefix("n1", path("missing")));
}

// Who is the same is told by the folder: an agent may be started with another name on it.
TEST_F(CgroupsTest, ThoseOfANodeThatWasCalledOtherwiseAreFound) {
  const auto before = cgroup_prefix("gpu-1.old-2", folder());
  const auto prefix = cgroup_prefix("n9", folder());
  ASSERT_TRUE(before && prefix);
  std::filesystem::create_directories(path("freezer/tutti/" + *before + "7.0.0"));
  // Of another folder, whose node has a name that looks as this one's place.
  const std::string strange = "tutti-" + prefix->substr(9) + "1.2-7.0.1";
  std::filesystem::create_directories(path("freezer/tutti/" + strange));
  EXPECT_EQ(cgroups_of(*prefix, folder()), (std::vector<RankCgroup>{{*before + "7.0.0", "7.0.0"}}));
  EXPECT_TRUE(sweep_cgroups(
      *prefix, [](const std::string&) { return false; }, 0s, folder()));
  EXPECT_FALSE(std::filesystem::exists(path("freezer/tutti/" + *before + "7.0.0")));
  EXPECT_TRUE(std::filesystem::exists(path("freezer/tutti/" + strange)));
}

}  // namespace
}  // namespace tutti::rank
