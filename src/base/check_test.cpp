#include "base/check.hpp"

#include <gtest/gtest.h>

namespace {

TEST(Check, PassesWhenTheFactHolds) {
  int evaluations = 0;
  TUTTI_CHECK(++evaluations == 1);
  EXPECT_EQ(evaluations, 1) << "the condition is evaluated exactly once";
}

TEST(CheckDeathTest, NamesFileConditionAndMeaning) {
  EXPECT_DEATH(TUTTI_CHECK(1 + 1 == 3), "check_test.cpp:[0-9]+: check failed: 1 \\+ 1 == 3\n");
  EXPECT_DEATH(TUTTI_CHECK(false, "a gang has at least one rank"),
               "check failed: false: a gang has at least one rank");
}

}  // namespace
