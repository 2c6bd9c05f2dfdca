#include "base/json/parse.hpp"

#include <gtest/gtest.h>

namespace tutti::json {
namespace {

Value parsed(std::string_view text) {
  auto value = parse(text);
  EXPECT_TRUE(value) << text << ": " << (value ? "" : value.error().text());
  return value ? *std::move(value) : Value();
}

// A scan says the same.
std::string why_not(std::string_view text) {
  const auto value = parse(text);
  const std::string why = value ? "" : value.error().text();
  const auto scanned = scan(text, text_bytes_max);
  EXPECT_EQ(scanned ? "" : scanned.error().text(), why) << text.substr(0, 100);
  return why;
}

TEST(Parse, ReadsEachKind) {
  EXPECT_EQ(parsed(" \t\r\n{ \"a\" : [ 1 , -2, 0.5, true, false, null, \"x\" , { } , [ ] ] } "),
            Value(Object{{"a", Array{1, -2, 0.5, true, false, nullptr, "x", Object{}, Array{}}}}));
  EXPECT_EQ(parsed("null"), Value());
  EXPECT_EQ(parsed("\"\""), Value(""));
  EXPECT_EQ(parsed(R"({"":1})"), Value(Object{{"", 1}}));
}

TEST(Parse, ReadsNumbers) {
  EXPECT_EQ(parsed("18446744073709551615").count(), 18446744073709551615U);
  EXPECT_EQ(parsed("-9223372036854775808").whole(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parsed("-0").whole(), 0);
  EXPECT_EQ(parsed("18446744073709551616").number(), 0x1p64) << "beyond 64 bits";
  EXPECT_EQ(parsed("18446744073709551616").whole(), std::nullopt);
  EXPECT_EQ(parsed("1.0").whole(), std::nullopt);
  EXPECT_EQ(parsed("1e2").number(), 100.0);
  EXPECT_EQ(parsed("1E+2").number(), 100.0);
  EXPECT_EQ(parsed("-2.5e-3").number(), -0.0025);
  EXPECT_EQ(parsed("0.30000000000000004").number(), 0.1 + 0.2);
  EXPECT_EQ(parsed("1.7976931348623157e308").number(), std::numeric_limits<double>::max());
  EXPECT_EQ(parsed("5e-324").number(), std::numeric_limits<double>::denorm_min());
}

TEST(Parse, RefusesWhatIsNoNumber) {
  for (const char* text : {"-", "+1", ".5", "NaN", "Infinity", "-a", "0x10", "01", "- 1"}) {
    EXPECT_NE(why_not(text), "") << text;
  }
  EXPECT_EQ(why_not("1."), "byte 2 : a digit is expected");
  EXPECT_EQ(why_not("[1e]"), "byte 3 : a digit is expected");
  EXPECT_EQ(why_not("[1e+]"), "byte 4 : a digit is expected");
  EXPECT_EQ(why_not("[01]"), "byte 2 : ',' or ']' is expected");
  EXPECT_EQ(why_not("[1e400]"), "byte 1 : the number is out of range");
  EXPECT_EQ(why_not("[-1e400]"), "byte 1 : the number is out of range");
}

TEST(Parse, ReadsEscapes) {
  EXPECT_EQ(*parsed(R"("\"\\\/\b\f\n\r\t")").text(), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(*parsed(R"("\u0041\u00e9\u20AC\ud83d\ude00\u0000x")").text(),
            std::string("A\u00e9\u20ac\U0001F600\0x", 12));
  EXPECT_EQ(*parsed("\"\u00e9\u20ac\U0001F600\x7f\"").text(), "\u00e9\u20ac\U0001F600\x7f");
  EXPECT_EQ(why_not(R"("\x41")"), "byte 2 : an escape is not known");
  EXPECT_EQ(why_not(R"("\u12g4")"), "byte 3 : four hexadecimal digits are expected");
  EXPECT_EQ(why_not(R"("\u12)"), "byte 3 : four hexadecimal digits are expected");
  EXPECT_EQ(why_not(R"("\u-123")"), "byte 3 : four hexadecimal digits are expected");
  for (const char* text :
       {R"("\ud83d")", R"("\ude00")", R"("\ud83dx")", R"("\ud83d\n")", R"("\ud83d\ud83d")"}) {
    EXPECT_NE(why_not(text).find("half of a surrogate pair is missing"), std::string::npos) << text;
  }
}

TEST(Parse, RefusesTextThatIsNone) {
  EXPECT_EQ(why_not("\"abc"), "byte 4 : a text has no end");
  EXPECT_EQ(why_not("\"a\\"), "byte 3 : an escape is not known");
  EXPECT_EQ(why_not("\"a\nb\""), "byte 2 : a text holds a control character that is not escaped");
  EXPECT_EQ(why_not(std::string_view("\"a\0b\"", 5)),
            "byte 2 : a text holds a control character that is not escaped");
  // A byte alone, a sequence cut off, an overlong one, half a surrogate pair, beyond the last code point.
  for (const char* text :
       {"\"\xff\"", "\"\xe2\x82\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\""}) {
    EXPECT_EQ(why_not(text), "byte 1 : a text is not valid UTF-8") << text;
  }
}

TEST(Parse, RefusesWhatIsNoValue) {
  EXPECT_EQ(why_not(""), "byte 0 : a value is expected");
  EXPECT_EQ(why_not("  "), "byte 2 : a value is expected");
  EXPECT_EQ(why_not("tru"), "byte 0 : a value is expected");
  EXPECT_EQ(why_not("[nul]"), "byte 1 : a value is expected");
  EXPECT_EQ(why_not("[1,]"), "byte 3 : a value is expected");
  EXPECT_EQ(why_not("[1 2]"), "byte 3 : ',' or ']' is expected");
  EXPECT_EQ(why_not("[1"), "byte 2 : ',' or ']' is expected");
  EXPECT_EQ(why_not("{1:2}"), "byte 1 : a key in quotes is expected");
  EXPECT_EQ(why_not(R"({"a":1,})"), "byte 7 : a key in quotes is expected");
  EXPECT_EQ(why_not(R"({"a" 1})"), "byte 5 : ':' is expected");
  EXPECT_EQ(why_not(R"({"a":1)"), "byte 6 : ',' or '}' is expected");
  EXPECT_EQ(why_not("{} {}"), "byte 3 : there is something behind the value");
  EXPECT_EQ(why_not(std::string_view("1\0", 2)), "byte 1 : there is something behind the value");
  EXPECT_EQ(why_not("/* a */ 1"), "byte 0 : a value is expected");
  EXPECT_EQ(why_not("\xEF\xBB\xBF{}"), "byte 0 : a value is expected");
}

TEST(Parse, RefusesAKeyThatIsThereTwice) {
  EXPECT_EQ(why_not(R"([{"a":1,"b":2,"a":1}])"), "byte 1 : a key is there twice");
  EXPECT_EQ(why_not(R"({"a":1,"\u0061":1})"), "byte 0 : a key is there twice");
  EXPECT_EQ(why_not(R"({"a":{"a":1}})"), "");
}

TEST(Parse, IsBoundedInDepth) {
  const auto nested = [](std::size_t depth, const std::string& open, const std::string& close) {
    std::string text;
    for (std::size_t at = 0; at < depth; ++at) text += open;
    text += "1";
    for (std::size_t at = 0; at < depth; ++at) text += close;
    return text;
  };
  EXPECT_EQ(why_not(nested(depth_max, "[", "]")), "");
  EXPECT_EQ(why_not(nested(depth_max + 1, "[", "]")), "byte 64 : it is nested too deeply");
  EXPECT_EQ(why_not(nested(depth_max, "{\"a\":", "}")), "");
  EXPECT_EQ(why_not(nested(depth_max + 1, "{\"a\":", "}")), "byte 320 : it is nested too deeply");
  EXPECT_EQ(why_not(std::string(1'000'000, '[')), "byte 64 : it is nested too deeply");
}

TEST(Scan, CountsEveryValue) {
  const std::string_view text = R"({"a":[1,"b",{"c":null}],"d":true})";  // three inside the list, and itself
  EXPECT_TRUE(scan(text, 7).ok());
  EXPECT_EQ(scan(text, 6).error().text(), "byte 28 : it has more values than are taken here");
  EXPECT_EQ(scan("[]", 0).error().text(), "byte 0 : it has more values than are taken here");
}

TEST(Scan, ReadsNoFurtherThanItTakesValues) {
  EXPECT_EQ(scan("[{},{},{},this is no JSON", 3).error().text(),
            "byte 7 : it has more values than are taken here");
}

TEST(Scan, BooleansAreNoWords) {
  const std::set<std::string> keys{"now"};
  EXPECT_TRUE(scan(R"({"now":true,"a":[{"now":false},{"now":null}],"then":"yes"})", 9, keys).ok());
  for (const char* const value : {R"("true")", "1", "[true]", "{}"}) {
    const auto refused = scan(std::string(R"({"a":[{"now":)") + value + "}]}", 9, keys);
    ASSERT_FALSE(refused.ok()) << value;
    EXPECT_EQ(refused.error().text(), "byte 13 : true or false is expected, without quotes");
  }
}

TEST(Parse, MembersKnowTheirPlaceInTheText) {
  const auto value = parse(R"({"z":1,"a":2,"m":{"y":1,"b":2}})");
  ASSERT_TRUE(value);
  std::string places;
  for (const Member& member : *value->object()) places += member.key + std::to_string(member.place);
  EXPECT_EQ(places, "a1m2z0");
  EXPECT_EQ(value->find("m")->object()->begin()->place, 1U);
  EXPECT_EQ(*value, *parse(R"({"a":2,"m":{"b":2,"y":1},"z":1})")) << "the place is no part of the value";
}

}  // namespace
}  // namespace tutti::json
