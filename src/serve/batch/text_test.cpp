#include "serve/batch/text.hpp"

#include <gtest/gtest.h>

#include "base/index.hpp"
#include "base/prng.hpp"

namespace tutti::serve {
namespace {

AnswerText ending_at(const std::vector<std::string>& stops) {
  return AnswerText(std::make_shared<const StopTexts>(stops));
}

TEST(AnswerText, HoldsBackWhatMayBecomeAStopText) {
  AnswerText text = ending_at({"STOP", "end"});
  EXPECT_FALSE(text.add("a S"));
  EXPECT_EQ(text.take(), "a ");
  EXPECT_FALSE(text.add("TO"));
  EXPECT_EQ(text.take(), "");
  EXPECT_FALSE(text.add("E e"));
  EXPECT_EQ(text.take(), "STOE ");
  EXPECT_FALSE(text.add("n"));
  EXPECT_TRUE(text.add("d and more"));
  EXPECT_EQ(text.take(), "");
  EXPECT_EQ(text.finish(), "");
}

TEST(AnswerText, GivesWhatStandsBeforeTheStopText) {
  AnswerText text = ending_at({"\n\n"});
  EXPECT_FALSE(text.add("one\n"));
  EXPECT_TRUE(text.add("\ntwo"));
  EXPECT_EQ(text.take(), "one");
}

TEST(AnswerText, TheLongestOfThoseThatEndTogether) {
  AnswerText text = ending_at({"b", "ab"});
  EXPECT_TRUE(text.add("xab"));
  EXPECT_EQ(text.take(), "x");
}

TEST(AnswerText, WhatWasHeldComesAtTheEnd) {
  AnswerText text = ending_at({"STOP"});
  EXPECT_FALSE(text.add("so ST"));
  EXPECT_EQ(text.take(), "so ");
  EXPECT_EQ(text.finish(), "ST");
}

TEST(AnswerText, FindsAStopTextBehindItsOwnBeginning) {
  AnswerText text = ending_at({"aab"});
  EXPECT_FALSE(text.add("aaa"));
  EXPECT_EQ(text.take(), "a");
  EXPECT_TRUE(text.add("b"));
  EXPECT_EQ(text.take(), "");
}

TEST(AnswerText, GivesWholeLettersAlone) {
  AnswerText text = ending_at({});
  for (const char* part : {"\xE2", "\x82"}) {
    EXPECT_FALSE(text.add(part));
    EXPECT_EQ(text.take(), "");
  }
  EXPECT_FALSE(text.add("\xAC!"));
  EXPECT_EQ(text.take(), "\xE2\x82\xAC!");
  EXPECT_FALSE(text.add("\xF0\x9F\x98"));
  EXPECT_EQ(text.take(), "");
  EXPECT_EQ(text.finish(), "\xF0\x9F\x98");
  // What can be no letter is not waited for.
  EXPECT_FALSE(text.add("\x80\x80\x80\x80"));
  EXPECT_EQ(text.take(), "\x80\x80\x80\x80");
}

TEST(AnswerText, IsTheTextUpToTheFirstStop) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng random(seed);
    const auto word = [&](std::size_t longest) {
      std::string made(1 + random.below(longest), ' ');
      for (char& letter : made) letter = static_cast<char>('a' + random.below(2));
      return made;
    };
    std::vector<std::string> stops(random.below(4));
    for (auto& stop : stops) stop = word(6);
    AnswerText text = ending_at(stops);
    std::string all;
    std::string given;
    bool over = false;
    for (int token = 0; token < 20 && !over; ++token) {
      const std::string part = word(3);
      all += part;
      over = text.add(part);
      given += text.take();
    }
    given += text.finish();
    std::size_t end = std::string::npos;  // of the first stop text; and where it begins
    std::size_t begin = all.size();
    for (const auto& stop : stops) {
      const auto place = all.find(stop);
      if (place == std::string::npos) continue;
      if (place + stop.size() < end || (place + stop.size() == end && place < begin)) {
        end = place + stop.size();
        begin = place;
      }
    }
    EXPECT_EQ(over, end != std::string::npos) << seed;
    EXPECT_EQ(given, all.substr(0, begin)) << seed;
  }
}

}  // namespace
}  // namespace tutti::serve
