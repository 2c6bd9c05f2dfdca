#include "base/json/value.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace tutti::json {
namespace {

TEST(Value, IsWhatWasPutIn) {
  EXPECT_TRUE(Value().is_null());
  EXPECT_EQ(Value(true).boolean(), true);
  EXPECT_EQ(Value(-7).whole(), -7);
  EXPECT_EQ(Value(-7).count(), std::nullopt);
  EXPECT_EQ(Value(7).whole(), 7);
  EXPECT_EQ(Value(7).count(), 7U);
  EXPECT_EQ(Value(7).number(), 7.0);
  EXPECT_EQ(Value(0.5).number(), 0.5);
  EXPECT_EQ(Value(7.0).whole(), std::nullopt) << "a double stays one";
  EXPECT_EQ(*Value("text").text(), "text");
  EXPECT_EQ(Value("text").boolean(), std::nullopt) << "a pointer is no truth";
  EXPECT_EQ(Value(Array{1, 2}).list()->size(), 2U);
  EXPECT_EQ(Value(Object{{"a", 1}}).find("a")->whole(), 1);
  EXPECT_EQ(Value(Object{{"a", 1}}).find("b"), nullptr);
  EXPECT_EQ(Value(1).find("a"), nullptr);
}

TEST(Value, KeepsWholeNumbersExactly) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(Value(most).count(), most);
  EXPECT_EQ(Value(most).whole(), std::nullopt) << "it does not fit";
  EXPECT_EQ(Value(least).whole(), least);
  EXPECT_EQ(Value(std::int64_t{1} << 62).whole(), std::int64_t{1} << 62);
}

TEST(Value, EqualsWhatStandsForTheSame) {
  EXPECT_EQ(Value(0), Value(0.0));
  EXPECT_EQ(Value(-3), Value(-3.0));
  EXPECT_NE(Value(0), Value(false));
  EXPECT_NE(Value(0), Value(nullptr));
  EXPECT_NE(Value("0"), Value(0));
  EXPECT_EQ(Value(nullptr), Value());
  EXPECT_EQ(Value(Array{1, "a"}), Value(Array{1.0, "a"}));
  EXPECT_NE(Value(Array{1}), Value(Array{1, 1}));
  EXPECT_EQ(Value(Object{{"a", 1}, {"b", 2}}), Value(Object{{"b", 2}, {"a", 1}}));
  EXPECT_NE(Value(Object{{"a", 1}}), Value(Object{{"b", 1}}));
}

TEST(Object, IsSortedByItsKeys) {
  Object object{{"b", 1}, {"c", 2}};
  object["a"] = 3;
  object["c"] = 4;
  std::string keys;
  for (const auto& [key, value] : object) keys += key;
  EXPECT_EQ(keys, "abc");
  EXPECT_EQ(*object.find("c"), Value(4));
  object.erase("b");
  EXPECT_EQ(object.find("b"), nullptr);
  EXPECT_EQ(object.size(), 2U);
}

TEST(ObjectDeathTest, WithAKeyTwiceIsABug) { EXPECT_DEATH((Object{{"a", 1}, {"a", 2}}), "each key once"); }

}  // namespace
}  // namespace tutti::json
