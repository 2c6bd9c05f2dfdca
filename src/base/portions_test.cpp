#include "base/portions.hpp"

#include <gtest/gtest.h>

#include <new>

#include "base/scarcity/scarcity.hpp"

namespace tutti {
namespace {

std::size_t take_all(Portions& portions, const std::string& who) {
  std::size_t taken = 0;
  while (portions.take(who)) ++taken;
  return taken;
}

TEST(Portions, OneAloneGetsThreeQuartersAndWhoComesLaterFindsRoom) {
  Portions portions(1'000);
  EXPECT_EQ(take_all(portions, "first"), 750U);
  EXPECT_EQ(take_all(portions, "second"), 188U);
  EXPECT_TRUE(portions.take("third"));
  EXPECT_EQ(portions.all(), 939U);
  portions.give_back("first", 750);
  EXPECT_EQ(portions.of("first"), 0U);
  EXPECT_GT(take_all(portions, "second"), 400U) << "what was given back is there for others";
}

TEST(Portions, FewAreGivenToWhoeverComes) {
  Portions one(1);
  EXPECT_TRUE(one.take("a"));
  EXPECT_FALSE(one.take("b"));
  Portions two(2);
  EXPECT_EQ(take_all(two, "a"), 2U);
  two.give_back("a");
  EXPECT_TRUE(two.take("b"));
}

TEST(Portions, WhoHoldsNothingMayTakeAllThatIsLeft) {
  Portions bytes(100);
  EXPECT_TRUE(bytes.take("a", 90));
  EXPECT_FALSE(bytes.take("a", 1));
  EXPECT_FALSE(bytes.take("b", 11));
  EXPECT_TRUE(bytes.take("b", 10));
  EXPECT_TRUE(bytes.take("c", 0)) << "nothing is always there";
  bytes.give_back("c", 0);
}

TEST(Portions, WhatCouldNotBeNotedIsNotTaken) {
  Portions portions(1);
  const std::string who = "somebody with a name that is long";
  bool is_refused = false;
  {
    const Scarcity scarcity(0);
    try {
      portions.take(who);
    } catch (const std::bad_alloc&) {
      is_refused = true;
    }
  }
  EXPECT_TRUE(is_refused);
  EXPECT_EQ(portions.all(), 0U);
  EXPECT_TRUE(portions.take(who));
}

}  // namespace
}  // namespace tutti
