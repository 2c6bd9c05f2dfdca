#include "node/agent/rank_names.hpp"

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

TEST(RankNames, NameOneRankEach) {
  const auto key = parse_key("7.2.3");
  ASSERT_TRUE(key);
  EXPECT_EQ(*key, (keeper::RankKey{cluster::JobId(7), 2, 3}));
  EXPECT_TRUE(parse_key("7.2147483647.2147483647"));
}

TEST(RankNames, WhatAnAttemptHasIsCalledOtherwiseInAnotherCluster) {
  const cluster::JobId job(7);
  EXPECT_EQ(place_name(job, 2, "0123456789abcdef"), "7.2.01234567");
  EXPECT_NE(place_name(job, 2, "one"), place_name(job, 2, "two"));
  EXPECT_EQ(place_name(job, 2, ""), attempt_name(job, 2));
}

// Somebody may have made such a folder beside those of ranks.
TEST(RankNames, NumbersThatNoRankHasNameNone) {
  EXPECT_FALSE(parse_key("7.4294967296.0")) << "it would be taken for 7.0.0";
  EXPECT_FALSE(parse_key("7.0.4294967297"));
  EXPECT_FALSE(parse_key("7.-1.0"));
  EXPECT_FALSE(parse_key("7.0"));
  EXPECT_FALSE(parse_key("7.0.0.0"));
}

}  // namespace
}  // namespace tutti::agent
