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
