// What a tokenizer.json of Hugging Face says, as far as it is a BPE over bytes (GPT-2, Llama 3, Qwen) or over
// code points with bytes for the rest (Llama 2, Mistral): the format in and out. A file that asks for
// anything which is not done here is refused, so that tokens are never silently different. Pure functions,
// any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "learn/tokenizer/added_tokens.hpp"
#include "learn/tokenizer/merges.hpp"
#include "learn/tokenizer/split.hpp"

namespace tutti::tokenizer {

constexpr std::size_t tokenizer_json_bytes_max = std::size_t{64} << 20U;
constexpr std::uint32_t vocabulary_max = 1U << 22U;
constexpr std::size_t added_token_bytes_max = 1024;
constexpr std::size_t frame_tokens_max = 16;  // on each side of a text
constexpr std::size_t steps_max = 16;         // of a normalizer and its like
constexpr std::size_t byte_values = 256;

constexpr std::string_view end_of_text_content = "<|endoftext|>";
// How SentencePiece writes a blank: ▁.
constexpr std::string_view blank_letter = "\xE2\x96\x81";

// What the merging of a word begins with.
enum class Symbols {
  bytes,
  code_points,  // and bytes for those that are no token; a blank is written as ▁ in the file
};

// When a blank is put before a text.
enum class Prefix {
  none,
  unless_blank,        // before each part between added tokens that does not begin with one
  first_unless_blank,  // only at the beginning of the text
  always,              // before each part between the added tokens that are looked for in the text as it came
};

struct Definition {
  struct Token {
    std::string bytes;          // what it decodes to; empty if no token has this id
    bool of_the_model = false;  // made by merging; others are only found as they are written
    bool special = false;       // steers the model, and is no text
  };

  std::vector<Token> tokens;  // by id
  Symbols symbols = Symbols::bytes;
  std::array<std::uint32_t, byte_values> byte_tokens{};
  std::unordered_map<char32_t, std::uint32_t> letter_tokens;  // of Symbols::code_points
  std::vector<Merge> merges;                                  // the earliest first
  bool ignore_merges = false;                                 // a word that is a token is not merged
  std::vector<AddedToken> added;
  bool nfc = false;
  Pattern pattern = Pattern::gpt2;
  Prefix prefix = Prefix::none;
  bool strips_blank = false;  // a text that is decoded loses one blank at its beginning
  // What the post-processor puts around a text.
  std::vector<std::uint32_t> before;
  std::vector<std::uint32_t> after;

  std::optional<std::uint32_t> end_of_text() const;
};

Result<Definition> read_definition(std::string_view tokenizer_json);

// The tokenizer.json of merges learned here: split like GPT-2, the token of byte b is b, a merge makes the
// next token or one that is there already, and <|endoftext|> is the last.
std::string write_learned(std::span<const Merge> learned);

}  // namespace tutti::tokenizer
