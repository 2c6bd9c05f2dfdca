#include "learn/tokenizer/unicode.hpp"

#include <string>

#include <gtest/gtest.h>

namespace tutti::tokenizer {
namespace {

TEST(Unicode, EveryCodePointIsReadAsItWasWritten) {
  for (char32_t code = 0; code <= code_point_max; ++code) {
    if (code == 0xD800) code = 0xE000;  // halves of UTF-16 pairs are no text
    std::string text;
    append_symbol(text, code);
    ASSERT_EQ(symbol_at(text, 0).code, code);
    ASSERT_EQ(symbol_at(text, 0).bytes, text.size());
    ASSERT_EQ(symbol_before("x" + text, text.size() + 1).code, code);
    ASSERT_TRUE(is_utf8(text));
  }
}

TEST(Unicode, BytesThatAreNoTextAreSymbolsOfTheirOwn) {
  for (const std::string text : {"\x80", "\xC3", "\xC0\xAF", "\xE2\x82", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                 "\xF0\x80\x80\xAF", "\xFF", "\xC3("}) {
    EXPECT_FALSE(is_utf8(text)) << testing::PrintToString(text);
    EXPECT_EQ(symbol_at(text, 0).bytes, 1U);
    EXPECT_GT(symbol_at(text, 0).code, code_point_max);
    EXPECT_EQ(kind_of(symbol_at(text, 0).code), Kind::other);
    std::string again;
    append_symbol(again, symbol_at(text, 0).code);
    EXPECT_EQ(again, text.substr(0, 1));
  }
  EXPECT_EQ(symbol_before("\xC3\xA9\x80", 3).bytes, 1U);
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("naïve 文字 🦊"));
}

TEST(Unicode, KnowsTheKindOfASymbol) {
  const auto expect = [](std::u32string_view symbols, Kind kind) {
    for (const char32_t code : symbols)
      EXPECT_EQ(kind_of(code), kind) << std::hex << static_cast<unsigned>(code);
  };
  expect(U"aZéßжあ文אﷺ𐐀ªʰ", Kind::letter);
  expect(U"07½²٣Ⅷ𝟘", Kind::number);
  expect(U" \t\n\v\f\r\x85\xA0\u1680\u2003\u2028\u202F\u3000", Kind::space);
  expect(U".!_'<€\u0301🦊\u200B", Kind::other);
  expect(std::u32string(1, U'\0'), Kind::other);
}

}  // namespace
}  // namespace tutti::tokenizer
