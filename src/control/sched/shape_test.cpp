#include "control/sched/shape.hpp"

#include <gtest/gtest.h>

namespace tutti::sched {
namespace {

TEST(Validate, RefusesUnsoundShapes) {
  EXPECT_TRUE(validate({.ranks = 1}).ok());
  EXPECT_FALSE(validate({.ranks = 0}).ok());
  EXPECT_FALSE(validate({.ranks = 1, .nodes = 2}).ok());
  EXPECT_FALSE(validate({.ranks = 5, .ranks_per_node = 2, .nodes = 2}).ok());
  EXPECT_FALSE(validate({.ranks = 1, .gpu_share = 1500}).ok());
  EXPECT_FALSE(validate({.ranks = 1, .gpu_share = -1}).ok());
}

TEST(Validate, CountsOfRanksDescendFromWhatIsWanted) {
  const auto why = [](std::int32_t ranks, std::vector<std::int32_t> counts) {
    const auto sound = validate({.ranks = ranks, .rank_counts = std::move(counts)});
    return sound ? "fine" : sound.error().message();
  };
  EXPECT_EQ(why(8, {}), "fine");
  EXPECT_EQ(why(8, {8}), "fine");
  EXPECT_EQ(why(8, {8, 4, 1}), "fine");
  EXPECT_EQ(why(8, {4}), "rank_counts begins with 4 and ranks is 8: they must be the same");
  EXPECT_EQ(why(8, {8, 4, 4}), "rank_counts must descend, and 4 comes after 4");
  EXPECT_EQ(why(8, {8, 2, 4}), "rank_counts must descend, and 4 comes after 2");
  EXPECT_EQ(why(8, {8, 0}), "a gang has at least one rank");
  std::vector<std::int32_t> many;
  for (std::int32_t count = 257; count > 0; --count) many.push_back(count);
  EXPECT_EQ(why(257, many), "rank_counts has more than 256 entries");
  many.erase(many.begin());
  EXPECT_EQ(why(256, many), "fine");
}

TEST(Level, ReadsItsOwnNames) {
  for (const char* name : {"cluster", "site", "pod", "rack", "nvlink"})
    EXPECT_EQ(name_of(parse_level(name).value()), name);
  EXPECT_FALSE(parse_level("room").ok());
}

}  // namespace
}  // namespace tutti::sched
