// A chat template as words: text, and what stands inside of {{ }} and {% %}. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::serve::chat {

struct Word {
  enum class Kind {
    text,          // outside of tags
    output_begin,  // {{
    output_end,
    block_begin,  // {%
    block_end,
    name,
    string,
    whole,
    number,
    sign,  // an operator or a bracket
    end,
  };

  Kind kind = Kind::end;
  std::string text;  // of a string, what it stands for
  std::size_t line = 0;
};

// The last one is Kind::end.
Result<std::vector<Word>> to_words(std::string_view text);

}  // namespace tutti::serve::chat
