// Guesses how a text goes on from itself: where its last tokens stood before, what followed them then. Cheap
// enough to ask for every token. Pure, one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serve/step/step.hpp"

namespace tutti::serve {

class Drafter {
 public:
  // How many tokens must be alike.
  static constexpr std::size_t alike = 3;

  // At most `count` tokens that may follow these. `tokens` is the text of the last call with more behind it.
  std::span<const Token> guess(std::span<const Token> tokens, std::size_t count);
  // Whether there may be a guess once one more token is behind these, whichever that is.
  bool may_guess_next(std::span<const Token> tokens);
  // A token for which nobody asks for a guess: it is one of those that are left out.
  void skip() { pause_ -= pause_ > 0 ? 1 : 0; }
  // How many of the guessed ones came. After a wrong guess the next are left out, the more the more often.
  void learn(std::size_t guessed, std::size_t right);

 private:
  static constexpr std::int32_t pause_max = 64;

  void index(std::span<const Token> tokens);

  std::vector<std::int32_t>
      ends_;                 // by a hash of `alike` tokens: where the latest ones like it ended; 0: nowhere
  std::vector<bool> begun_;  // by a hash of one token less: whether more followed such tokens somewhere
  std::size_t indexed_ = 0;  // tokens
  std::int32_t pause_ = 0;   // guesses that are left out
  std::int32_t next_pause_ = 1;
};

}  // namespace tutti::serve
