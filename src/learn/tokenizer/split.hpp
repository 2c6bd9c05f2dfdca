// Cuts text into the words inside which tokens are merged, as the regular expressions of well-known
// tokenizers do. Written by hand for each of them: std::regex knows no \p{L}. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tutti::tokenizer {

enum class Pattern {
  whole,      // the text is one word
  gpt2,       // contractions, letters, numbers and signs, each with one blank before it
  cl100k,     // GPT-4 and Llama 3: numbers of at most three digits, line ends apart
  qwen2,      // the same with numbers of one digit
  blank,      // each blank begins a word
  blank_run,  // each run of blanks begins a word
};

// The pattern that is written this way in a tokenizer.json.
std::optional<Pattern> find_pattern(std::string_view expression);

// How many bytes the first word has of a text that is not empty.
std::size_t first_word(Pattern pattern, std::string_view text);

// Whether the text can be cut behind this line end, and both sides be split on their own to the same words.
bool may_cut_behind(std::string_view text, std::size_t line_end);

}  // namespace tutti::tokenizer
