#include "learn/tokenizer/train.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.hpp"

namespace tutti::tokenizer {
namespace {

using Tokens = std::vector<std::uint32_t>;

std::string sentences(std::uint64_t seed, int count) {
  const std::vector<std::string> words{"the",   "cat", "sat",  "on",   "mat",   "with",     "another",
                                       "don't", "12",  "über", "文字", "train", "training", "tutti"};
  Prng prng(seed);
  std::string text;
  for (int at = 0; at < count; ++at)
    text += words[prng.below(words.size())] + (prng.chance(0.1) ? ".\n" : " ");
  return text;
}

TEST(Trainer, MergesTheMostFrequentPairFirst) {
  Trainer trainer;
  trainer.add("ab ab ab cd");
  const auto tokenizer = trainer.train(260);
  ASSERT_TRUE(tokenizer) << tokenizer.error().text();
  EXPECT_EQ(tokenizer->vocabulary(), 259) << "nothing but ab and ' ab' occurs twice";
  EXPECT_EQ(tokenizer->encode("ab"), Tokens{256});
  EXPECT_EQ(tokenizer->encode(" ab"), Tokens{257});
  EXPECT_EQ(tokenizer->end_of_text(), 258U);
}

TEST(Trainer, OfEquallyFrequentPairsTheSmallestIsFirst) {
  Trainer trainer;
  trainer.add("zy zy ba ba");
  const auto tokenizer = trainer.train(258);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode(" b"), Tokens{256}) << "the blank is the smallest byte, b comes before z";
}

TEST(Trainer, CountsOverlapsOnce) {
  Trainer trainer;
  trainer.add("aaaaa aaaaa");
  const auto tokenizer = trainer.train(300);
  ASSERT_TRUE(tokenizer);
  for (const std::string text : {"a", "aa", "aaa", "aaaa", "aaaaa", "aaaaaaaaaaaa"})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LE(tokenizer->encode("aaaaa").size(), 2U);
}

TEST(Trainer, TheTokenizerCompressesAndGivesBack) {
  Trainer trainer;
  trainer.add(sentences(1, 20'000));
  const auto tokenizer = trainer.train(400);
  ASSERT_TRUE(tokenizer);
  const std::string text = sentences(2, 1000);
  const auto tokens = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_LT(tokens.size() * 3, text.size());
  EXPECT_EQ(tokenizer->encode(" training").size(), 1U);
  const std::string strange = "\xFF\xFE ｆｕｌｌ 🦊\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(strange)), strange);
}

TEST(Trainer, TheOrderOfTheTextDoesNotMatter) {
  Trainer one;
  one.add(sentences(1, 2000) + "\n");
  one.add(sentences(2, 2000) + "\n");
  Trainer other;
  other.add(sentences(2, 2000) + "\n");
  other.add(sentences(1, 2000) + "\n");
  EXPECT_EQ(one.train(350)->json(), other.train(350)->json());
}

TEST(Trainer, TellsHowFarItIsAndCanBeEnded) {
  Trainer trainer;
  trainer.add(sentences(1, 2000));
  std::int64_t last = 0;
  ASSERT_TRUE(trainer.train(320, [&](std::int64_t done, std::int64_t wanted) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, wanted);
    last = done;
    return true;
  }));
  EXPECT_GT(last, 0);
  EXPECT_FALSE(trainer.train(320, [](std::int64_t, std::int64_t) { return false; }));
}

TEST(Trainer, RefusesWhatCannotBe) {
  Trainer trainer;
  EXPECT_FALSE(trainer.train(300)) << "no text";
  trainer.add("text");
  EXPECT_FALSE(trainer.train(256));
  EXPECT_FALSE(trainer.train(trained_vocabulary_max + 1));
  EXPECT_EQ(trainer.train(257)->vocabulary(), 257);
}

}  // namespace
}  // namespace tutti::tokenizer
