#include "base/text.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(EditDistance, CountsSlips) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("run", "run"), 0U);
  EXPECT_EQ(edit_distance("", "run"), 3U);
  EXPECT_EQ(edit_distance("rnu", "run"), 1U) << "a swap of neighbours is one slip";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> commands{"run", "submit", "status", "cancel"};
  EXPECT_EQ(nearest("stauts", commands), "status");
  EXPECT_EQ(nearest("rn", commands), "run");
  EXPECT_EQ(nearest("submti", commands), "submit");
  EXPECT_EQ(did_you_mean("cancle", commands), "did you mean 'cancel'?");
}

TEST(Nearest, DoesNotGuessWildly) {
  const std::vector<std::string> commands{"run", "up", "status"};
  EXPECT_EQ(nearest("frobnicate", commands), std::nullopt);
  EXPECT_EQ(nearest("xy", commands), std::nullopt);
  EXPECT_EQ(nearest("summit-all", commands), std::nullopt);
  const std::vector<std::string> flags{"--grace", "--gpus", "--time"};
  EXPECT_EQ(nearest("--gres", flags), std::nullopt) << "two slips in four letters are another word";
  EXPECT_EQ(nearest("--tiem", flags), "--time");
  EXPECT_EQ(nearest("-gpus", flags), "--gpus");
  EXPECT_EQ(nearest("", commands), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'r'), commands), std::nullopt);
  EXPECT_EQ(did_you_mean("frobnicate", commands), "");
}

TEST(Text, ValidUtf8StaysAndTheRestIsReplaced) {
  const std::string fine = "a \u00e9 \u20ac \U0001F600\n";
  EXPECT_EQ(valid_utf8(fine), fine);
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(valid_utf8(fine.substr(0, 3)), "a \xEF\xBF\xBD") << "a character cut in two";
  for (const char* wrong :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xF0\x80\x80\x80", "\x80"}) {
    EXPECT_EQ(valid_utf8(wrong).find("\xEF\xBF\xBD"), 0U);
  }
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string_view>{""}));
}

TEST(Text, TrimTakesBlanksOffBothEnds) {
  EXPECT_EQ(trim(" \ta b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

}  // namespace
}  // namespace tutti
