// Tokens that are found in the text as they are written, before any merging: <|endoftext|> and its like.
// Immutable, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tokenizer {

struct AddedToken {
  std::string content;  // not empty
  std::uint32_t id = 0;
  bool normalized = false;  // looked for after the text has been normalised, not before
  bool special = false;     // steers the model
};

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    std::size_t at;
    const AddedToken* token;
  };
  // The leftmost at or after `from`; of those that begin there, the longest.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

  bool contain(char letter) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  std::array<bool, 256> begins_{};  // by the first byte
};

}  // namespace tutti::tokenizer
