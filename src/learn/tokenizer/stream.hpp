// Tokens as text while they come: whole letters only, and in all the same bytes as when the tokens are
// decoded at once. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "learn/tokenizer/tokenizer.hpp"

namespace tutti::tokenizer {

class TextStream {
 public:
  TextStream(Tokenizer tokenizer, const DecodeOptions& options);

  // What can be shown now. A letter of several bytes is held back until it is whole; bytes that cannot become
  // one are given as they are.
  std::string add(std::uint32_t token);
  // What is left when no token follows.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool special_;
  bool at_the_beginning_;  // a blank that comes now is the one that is left out
  std::string held_;       // the beginning of a letter
};

}  // namespace tutti::tokenizer
