#include "serve/batch/draft.hpp"

#include <gtest/gtest.h>

#include "base/prng.hpp"

namespace tutti::serve {
namespace {

using Tokens = std::vector<Token>;

Tokens guessed(Drafter& drafter, const Tokens& tokens, std::size_t count) {
  const auto guess = drafter.guess(tokens, count);
  return {guess.begin(), guess.end()};
}

TEST(Drafter, GoesOnAsBefore) {
  Drafter drafter;
  EXPECT_EQ(guessed(drafter, {1, 2, 3, 4, 5, 1, 2, 3}, 2), (Tokens{4, 5}));
  EXPECT_EQ(guessed(drafter, {1, 2, 3, 4, 5, 1, 2, 3}, 9), (Tokens{4, 5, 1, 2, 3}));
  EXPECT_EQ(guessed(drafter, {1, 2, 3, 4, 5, 1, 2, 3}, 0), Tokens{});
}

TEST(Drafter, TakesTheLatestOfSeveral) {
  Drafter drafter;
  EXPECT_EQ(guessed(drafter, {1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}, 1), Tokens{5});
}

TEST(Drafter, KeepsSilentWhenNothingIsAlike) {
  Drafter drafter;
  EXPECT_EQ(guessed(drafter, {1, 2, 3}, 4), Tokens{});
  EXPECT_EQ(guessed(drafter, {1, 2, 3, 4, 5, 6, 2, 3}, 4), Tokens{});
}

TEST(Drafter, IsQuieterAfterWrongGuesses) {
  Drafter drafter;
  const Tokens tokens{1, 2, 3, 4, 1, 2, 3};
  int silent = 0;
  for (int wrong = 0; wrong < 4; ++wrong) {
    while (drafter.guess(tokens, 1).empty()) ++silent;
    drafter.learn(1, 0);
  }
  EXPECT_EQ(silent, 1 + 2 + 4);
}

TEST(Drafter, KnowsThatNoTokenBringsAGuess) {
  Drafter drafter;
  const auto may = [&](const Tokens& tokens) { return drafter.may_guess_next(tokens); };
  EXPECT_FALSE(may({1, 2}));
  EXPECT_FALSE(may({1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(may({1, 2, 3, 4, 5, 6, 2, 3}));
  drafter = {};
  EXPECT_TRUE(may({1, 2, 2, 2})) << "its own end";
  drafter = {};
  const Tokens again{1, 2, 3, 4, 1, 2, 3};
  EXPECT_TRUE(may(again));
  drafter.learn(1, 0);
  EXPECT_FALSE(may(again)) << "the next is left out";
  drafter.skip();
  EXPECT_TRUE(may(again));
}

// Whatever comes: a guess that is made was said to be possible.
TEST(Drafter, MakesNoGuessThatItHadRuledOut) {
  Prng random(4);
  Drafter drafter;
  Tokens tokens;
  int guesses = 0;
  int ruled_out = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    const bool may = drafter.may_guess_next(tokens);
    tokens.push_back(static_cast<Token>(random.below(turn % 100 < 50 ? 1000 : 5)));
    const bool is_guess = !drafter.guess(tokens, 1).empty();
    ASSERT_TRUE(may || !is_guess) << turn;
    guesses += is_guess ? 1 : 0;
    ruled_out += may ? 0 : 1;
    if (is_guess) drafter.learn(1, random.below(2));
  }
  EXPECT_GT(guesses, 100);
  EXPECT_GT(ruled_out, 400);
}

TEST(Drafter, FindsWhatASearchFinds) {
  Prng random(3);
  Drafter drafter;
  Tokens tokens;
  for (int turn = 0; turn < 2000; ++turn) {
    tokens.push_back(static_cast<Token>(random.below(6)));
    Tokens expected;
    for (std::size_t end = tokens.size() - 1; end >= 3 && end < tokens.size() && expected.empty(); --end) {
      if (std::equal(tokens.end() - 3, tokens.end(), tokens.begin() + static_cast<std::ptrdiff_t>(end) - 3))
        expected.push_back(tokens[end]);
    }
    const Tokens guess = guessed(drafter, tokens, 1);
    // Two hashes in one place may hide a match; a guess that is made is the latest one.
    if (!guess.empty() || expected.empty()) {
      EXPECT_EQ(guess, expected) << turn;
    }
  }
}

}  // namespace
}  // namespace tutti::serve
