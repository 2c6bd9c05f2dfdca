#include "learn/tokenizer/nfc.hpp"

#include <gtest/gtest.h>

namespace tutti::tokenizer {
namespace {

TEST(Nfc, PutsLettersAndMarksTogether) {
  EXPECT_EQ(to_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(to_nfc("a\u0323\u0302"), "\u1EAD");  // ậ, through ạ
  EXPECT_EQ(to_nfc("a\u0302\u0323"), "\u1EAD");  // marks of different classes change places
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(to_nfc("a\u0301\u0301"), "\u00E1\u0301");  // the second is kept apart by the first
  EXPECT_EQ(to_nfc("\u0301e"), "\u0301e");
}

TEST(Nfc, ReplacesSignsThatStandForOthers) {
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");        // the sign Ångström
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");  // taken apart, and never put together
  EXPECT_EQ(to_nfc("\uFA0C"), "\u5140");
}

TEST(Nfc, ComposesHangul) {
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\uD558\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\uD55C\u11AB"), "\uD55C\u11AB");
}

TEST(Nfc, LeavesAllElseAlone) {
  for (const char* text : {"", "plain", "naïve café", "文字", "한국어", "\xFF\xC3", "e\xCC"}) {
    EXPECT_EQ(to_nfc(text), text);
    EXPECT_TRUE(is_surely_nfc(text)) << text;
  }
  EXPECT_FALSE(is_surely_nfc("e\u0301"));
  EXPECT_FALSE(is_surely_nfc("\u212B"));
  EXPECT_FALSE(is_surely_nfc("\u1112\u1161"));
}

}  // namespace
}  // namespace tutti::tokenizer
