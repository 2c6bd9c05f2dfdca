#include "learn/tokenizer/split.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::tokenizer {
namespace {

using Words = std::vector<std::string>;

Words split(Pattern pattern, std::string_view text) {
  Words words;
  while (!text.empty()) {
    const std::size_t bytes = first_word(pattern, text);
    if (bytes == 0 || bytes > text.size()) return {"no word"};
    words.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return words;
}

TEST(Split, AtBlanks) {
  EXPECT_EQ(split(Pattern::blank, "a  b c"), (Words{"a", " ", " b", " c"}));
  EXPECT_EQ(split(Pattern::blank, "  a"), (Words{" ", " a"}));
  EXPECT_EQ(split(Pattern::blank_run, "a  b c"), (Words{"a", "  b", " c"}));
  EXPECT_EQ(split(Pattern::blank_run, "  a "), (Words{"  a", " "}));
  EXPECT_EQ(split(Pattern::blank_run, "   "), (Words{"   "}));
}

TEST(Split, LikeGpt2) {
  const auto words = [](std::string_view text) { return split(Pattern::gpt2, text); };
  EXPECT_EQ(words("Hello, world! don't  stop 123"),
            (Words{"Hello", ",", " world", "!", " don", "'t", " ", " stop", " 123"}));
  EXPECT_EQ(words("   lead"), (Words{"  ", " lead"}));
  EXPECT_EQ(words("trail   "), (Words{"trail", "   "}));
  EXPECT_EQ(words("a\n\n  b\n"), (Words{"a", "\n\n ", " b", "\n"}));
  EXPECT_EQ(words("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(words("\tx"), (Words{"\t", "x"}));
  EXPECT_EQ(words("I'll we've they're you'd I'm it's"),
            (Words{"I", "'ll", " we", "'ve", " they", "'re", " you", "'d", " I", "'m", " it", "'s"}));
  EXPECT_EQ(words("DON'T '' 'x 'r"), (Words{"DON", "'", "T", " ''", " '", "x", " '", "r"}));
  EXPECT_EQ(words("x1²y"), (Words{"x", "1²", "y"}));
  EXPECT_EQ(words("Привет, 世界! שלום"), (Words{"Привет", ",", " 世界", "!", " שלום"}));
  EXPECT_EQ(words("a\u3000b\u00A0\u00A0c"), (Words{"a", "\u3000", "b", "\u00A0", "\u00A0", "c"}));
  EXPECT_EQ(words("e\u0301"), (Words{"e", "\u0301"})) << "a mark is no letter";
  EXPECT_EQ(words("a \xFF\xFE b"), (Words{"a", " \xFF\xFE", " b"})) << "bytes that are no text";
  EXPECT_EQ(words(" "), Words{" "});
  EXPECT_EQ(words("'"), Words{"'"});
}

TEST(Split, LikeGpt4AndLlama3) {
  const auto words = [](std::string_view text) { return split(Pattern::cl100k, text); };
  EXPECT_EQ(words("Hello, world! don't  stop 12345"),
            (Words{"Hello", ",", " world", "!", " don", "'t", " ", " stop", " ", "123", "45"}));
  EXPECT_EQ(words("DON'T I'LL i\u2019m x'ſy"),
            (Words{"DON", "'T", " I", "'LL", " i", "\u2019m", " x", "'ſ", "y"}));
  EXPECT_EQ(words("'x"), Words{"'x"});
  EXPECT_EQ(words("(a) _b\tc"), (Words{"(a", ")", " _", "b", "\tc"}));
  EXPECT_EQ(words("end.\n\nNext"), (Words{"end", ".\n\n", "Next"}));
  EXPECT_EQ(words("a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(words("a\r\nb"), (Words{"a", "\r\n", "b"}));
  EXPECT_EQ(words("a  \n"), (Words{"a", "  \n"}));
  EXPECT_EQ(words("x = {}\n"), (Words{"x", " =", " {}\n"}));
  EXPECT_EQ(words("   "), Words{"   "});
}

TEST(Split, LikeQwen2) { EXPECT_EQ(split(Pattern::qwen2, "a 12.5"), (Words{"a", " ", "1", "2", ".", "5"})); }

TEST(Split, Whole) { EXPECT_EQ(split(Pattern::whole, "one and two"), Words{"one and two"}); }

TEST(Split, FindsThePatternByItsExpression) {
  EXPECT_EQ(find_pattern(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
            Pattern::gpt2);
  EXPECT_EQ(find_pattern(R"(\s+)"), std::nullopt);
}

TEST(Split, CutsOnlyAtALineEndBetweenWords) {
  const auto cut = [](std::string_view text) { return may_cut_behind(text, text.find('\n')); };
  EXPECT_TRUE(cut("a\nb"));
  EXPECT_TRUE(cut("文。\n字"));
  EXPECT_FALSE(cut("a\n b"));
  EXPECT_FALSE(cut("a\n\nb"));
  EXPECT_FALSE(cut("a \nb"));
  EXPECT_FALSE(cut("a\u3000\nb"));
  EXPECT_FALSE(cut("\nb"));
  EXPECT_FALSE(cut("a\n"));
}

}  // namespace
}  // namespace tutti::tokenizer
