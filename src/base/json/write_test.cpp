#include "base/json/write.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "base/prng.hpp"

namespace tutti::json {
namespace {

TEST(Write, OnOneLine) {
  EXPECT_EQ(write(Object{{"b", Array{1, -2, 0.5, true, false, nullptr}}, {"a", Object{}}, {"c", Array{}}}),
            R"({"a":{},"b":[1,-2,0.5,true,false,null],"c":[]})");
  EXPECT_EQ(write(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(write(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

TEST(Write, Indented) {
  EXPECT_EQ(write(Object{{"a", Array{1, Object{{"b", 2}}}}, {"c", Object{}}, {"d", Array{}}}, {.indent = 2}),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}");
}

// The files written so far stay the same, byte for byte.
TEST(Write, DoublesAsTheyHaveAlwaysBeen) {
  const auto is = [](double number, const char* text) { EXPECT_EQ(write(number), text); };
  is(0.0, "0.0");
  is(-0.0, "-0.0");
  is(1.0, "1.0");
  is(10000, "10000.0");
  is(123.25, "123.25");
  is(1e-05, "1e-05");
  is(6e-4, "0.0006");
  is(-0.00012345, "-0.00012345");
  is(1e14, "100000000000000.0");
  is(999999999999999, "999999999999999.0");
  is(1e15, "1e+15");
  is(1234567890123456, "1.234567890123456e+15");
  is(-1.5e-7, "-1.5e-07");
  is(1e100, "1e+100");
  is(0.1 + 0.2, "0.30000000000000004");
  is(5e-324, "5e-324");
  is(std::numeric_limits<double>::max(), "1.7976931348623157e+308");
  is(std::numeric_limits<double>::infinity(), "null");
  is(std::nan(""), "null");
}

TEST(Write, DoublesReadBackToTheLastBit) {
  Prng random(1);
  for (int round = 0; round < 20'000; ++round) {
    const double number = round % 2 == 0 ? std::bit_cast<double>(random.next()) : random.unit() * 20 - 10;
    if (!std::isfinite(number)) continue;
    const auto again = parse(write(number));
    ASSERT_TRUE(again) << write(number) << ": " << again.error().text();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(again->number().value()), std::bit_cast<std::uint64_t>(number))
        << write(number);
    EXPECT_EQ(again->whole(), std::nullopt) << "a double stays one: " << write(number);
  }
}

TEST(Write, TextWithItsEscapes) {
  const std::string text("\"\\/\b\f\n\r\t\x01\x1f\x7f é€😀");
  EXPECT_EQ(write(text), "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f é€😀\"");
  EXPECT_EQ(write(text, {.ascii = true}), R"("\"\\/\b\f\n\r\t\u0001\u001f\u007f \u00e9\u20ac\ud83d\ude00")");
  EXPECT_EQ(write(std::string("a\0b", 3)), R"("a\u0000b")");
  EXPECT_EQ(write("a\xff"
                  "b"),
            "\"a\xEF\xBF\xBD"
            "b\"");
  EXPECT_EQ(write("\xff", {.ascii = true}), R"("\ufffd")");
  EXPECT_EQ(write(Object{{"\n", 1}}), R"({"\n":1})");
}

}  // namespace
}  // namespace tutti::json
