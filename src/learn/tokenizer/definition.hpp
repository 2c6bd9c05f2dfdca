// What a tokenizer.json of Hugging Face says, as far as it is a byte-level BPE: the format in and out. A file
// that asks for anything which is not done here is refused, so that tokens are never silently different. Pure
// functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "learn/tokenizer/added_tokens.hpp"
#include "learn/tokenizer/merges.hpp"
#include "learn/tokenizer/split.hpp"

namespace tutti::tokenizer {

constexpr std::size_t tokenizer_json_bytes_max = std::size_t{64} << 20U;
constexpr std::uint32_t vocabulary_max = 1U << 22U;
constexpr std::size_t added_token_bytes_max = 1024;
constexpr std::size_t byte_values = 256;

constexpr std::string_view end_of_text_content = "<|endoftext|>";

struct Definition {
  struct Token {
    std::string bytes;          // what it decodes to; empty if no token has this id
    bool of_the_model = false;  // made of bytes by merging; others are only found as they are written
  };

  std::vector<Token> tokens;  // by id
  std::array<std::uint32_t, byte_values> byte_tokens{};
  std::vector<Merge> merges;   // the earliest first
  bool ignore_merges = false;  // a word that is a token is not merged
  std::vector<AddedToken> added;
  bool nfc = false;
  Pattern pattern = Pattern::gpt2;
  bool prefix_space = false;  // before text that does not begin with one

  std::optional<std::uint32_t> end_of_text() const;
};

Result<Definition> read_definition(std::string_view tokenizer_json);

// The tokenizer.json of merges learned here: split like GPT-2, the token of byte b is b, a merge makes the
// next token or one that is there already, and <|endoftext|> is the last.
std::string write_learned(std::span<const Merge> learned);

}  // namespace tutti::tokenizer
