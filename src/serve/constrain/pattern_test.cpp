#include "serve/constrain/pattern.hpp"

#include <gtest/gtest.h>

#include <regex>

#include "base/prng.hpp"
#include "serve/constrain/reading_test.hpp"

namespace tutti::serve {
namespace {

Reading reading(std::string_view pattern, PatternStyle style = {}) {
  return Reading([&](Grammar& grammar, NodeId from) {
    Effort effort;
    return add_pattern(grammar, from, pattern, style, effort);
  });
}

TEST(Pattern, TakesWhatAnotherReaderTakes) {
  for (const char* pattern :
       {"",           "a",          "ab|c",     "(ab|a)(c|bcd)", "a*",    "(a|b)*abb", "a+b?",
        "[ab]{2}",    "[ab]{1,3}c", "a{2,}",    "(ab){0,2}",     "[^a]b", "a.c",       "(a|)b",
        "((a)|(b))*", "(a*)*",      "(a?){3}",  "[a-c]+",        "a{0}b", "(?:a|b)c",  "a|b|",
        "^ab$",       "a*?b",       "(a+b*)+c", "a{0,1}b{3}"}) {
    Reading ours = reading(pattern);
    ASSERT_EQ(ours.refusal, "") << pattern;
    const std::regex theirs(pattern);
    for (int number = 0; number < 4 * 4 * 4 * 4 * 4 * 2; ++number) {
      std::string text;
      for (int rest = number; rest > 0; rest /= 4) text += "abcd"[rest % 4];
      EXPECT_EQ(ours.takes(text), std::regex_match(text, theirs)) << pattern << " and " << text;
    }
  }
}

TEST(Pattern, KnowsTheUsualOnes) {
  Reading date = reading(R"(\d{4}-(0[1-9]|1[0-2])-\d\d)");
  EXPECT_TRUE(date.takes("2026-11-16"));
  EXPECT_FALSE(date.takes("2026-13-16"));
  Reading mail = reading(R"([\w.+-]+@[\w-]+(\.[\w-]+)+)");
  EXPECT_TRUE(mail.takes("a.b+c@example.org"));
  EXPECT_FALSE(mail.takes("a@b"));
  Reading space = reading(R"(\S+\s\S+)");
  EXPECT_TRUE(space.takes("ä \xE2\x82\xAC"));
  EXPECT_FALSE(space.takes("a\xFF b"));
  EXPECT_TRUE(reading(R"([\]\-\\^]+)").takes("]-\\^"));
  EXPECT_TRUE(reading(R"(\x41B\$\.)").takes("AB$."));
}

TEST(Pattern, LettersAreThoseOfUnicode) {
  EXPECT_TRUE(reading("..").takes("\xF0\x9F\x98\x80\xC3\xA9"));
  EXPECT_FALSE(reading("..").takes("\xC3\xA9"));
  EXPECT_FALSE(reading(".").takes("\xED\xA0\x80")) << "half a pair is no letter";
  Reading range = reading("[\xC3\xA0-\xE2\x82\xAC]");
  for (const auto& [text, taken] : std::vector<std::pair<const char*, bool>>{{"\xC3\x9F", false},
                                                                             {"\xC3\xA0", true},
                                                                             {"\xDF\xBF", true},
                                                                             {"\xE0\xA0\x80", true},
                                                                             {"\xE2\x82\xAC", true},
                                                                             {"\xE2\x82\xAD", false}})
    EXPECT_EQ(range.takes(text), taken) << text;
}

TEST(Pattern, EveryRangeOfLettersIsExact) {
  Prng random(5);
  const auto encode = [](char32_t code) {
    std::string text;
    if (code < 0x80) return text += static_cast<char>(code);
    if (code < 0x800) {
      text += static_cast<char>(0xC0U | code >> 6U);
    } else if (code < 0x10000) {
      text += static_cast<char>(0xE0U | code >> 12U);
      text += static_cast<char>(0x80U | (code >> 6U & 0x3FU));
    } else {
      text += static_cast<char>(0xF0U | code >> 18U);
      text += static_cast<char>(0x80U | (code >> 12U & 0x3FU));
      text += static_cast<char>(0x80U | (code >> 6U & 0x3FU));
    }
    return text += static_cast<char>(0x80U | (code & 0x3FU));
  };
  for (int turn = 0; turn < 200; ++turn) {
    const auto any = [&] { return static_cast<char32_t>(random.below(0x110000) >> random.below(18)); };
    const char32_t a = any();
    const char32_t b = any();
    Reading range([&](Grammar& grammar, NodeId from) -> Result<NodeId> {
      const NodeId to = grammar.add();
      grammar.letters(from, std::min(a, b), std::max(a, b), to);
      return to;
    });
    for (int probe = 0; probe < 100; ++probe) {
      const char32_t code = probe < 4 ? (probe % 2 == 0 ? a : b) + static_cast<char32_t>(probe / 2) : any();
      const bool inside =
          code >= std::min(a, b) && code <= std::max(a, b) && !(code >= 0xD800 && code <= 0xDFFF);
      if (code > 0x10FFFF) continue;
      ASSERT_EQ(range.takes(encode(code)), inside) << std::hex << static_cast<unsigned>(code);
    }
  }
}

TEST(Pattern, FindsInStringsOfJson) {
  const PatternStyle style{.in_json_string = true, .finds = true};
  Reading inside = reading("b+", style);
  EXPECT_TRUE(inside.takes("abbc"));
  EXPECT_FALSE(inside.takes("ac"));
  EXPECT_FALSE(reading("^b", style).takes("ab"));
  EXPECT_FALSE(reading("b$", style).takes("bc"));
  EXPECT_TRUE(reading("^\"$", style).takes("\\\""));
  EXPECT_FALSE(reading("^.$", style).takes("\""));
  EXPECT_TRUE(reading("^\\$$", style).takes("$"));
  EXPECT_FALSE(reading("^[\\s]$", style).takes("\n")) << "a string of JSON has no line breaks";
  EXPECT_TRUE(reading("^a[\\s]b$", style).takes("a\\nb"));
  EXPECT_TRUE(reading("^a\\tb$", style).takes("a\\tb"));
  EXPECT_FALSE(reading("^a\\tb$", style).takes("a\\nb"));
  EXPECT_FALSE(reading("^.$", style).takes("\\n")) << "a dot is no line break";
}

TEST(Pattern, RefusesWhatItDoesNotKnow) {
  for (const char* pattern :
       {"(",   ")",   "a)",  "[a",  "a{",    "a{2", "a{3,2}", "*a",   "a**",    "(?=a)",  "(?<n>a)",
        "\\1", "\\b", "a^b", "a$b", "[z-a]", "\\",  "\\u12",  "\xFF", "\\p{L}", "a{1001}"}) {
    EXPECT_NE(reading(pattern).refusal, "") << pattern;
  }
}

TEST(Pattern, RefusesWhatExplodes) {
  std::string deep(100, '(');
  for (const std::string& pattern : {std::string("(a|b)*a(a|b){20}"), std::string("((a{100}){100}){100}"),
                                     std::string("(.{0,900}){0,900}"), deep, std::string(5000, 'a'),
                                     std::string("((((a*)*)*b{1000}){1000})")}) {
    EXPECT_NE(reading(pattern).refusal, "") << pattern.substr(0, 40);
  }
}

TEST(Pattern, LeadsNowhereAstray) {
  // Each state that can be reached has a text that it ends with.
  EXPECT_EQ(reading("a\\x01", {.in_json_string = true}).refusal, "no text is like the pattern");
  Reading either = reading("a(\\x01b|c)", {.in_json_string = true});
  EXPECT_TRUE(either.takes("ac"));
  EXPECT_EQ(reading("[^\\s\\S]").refusal, "no text is like the pattern");
}

}  // namespace
}  // namespace tutti::serve
