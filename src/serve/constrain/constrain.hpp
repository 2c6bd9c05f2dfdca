// Answers that have a form: a guide over tokens of a pattern, a schema, or any JSON object. What may come in
// a state is found by reading the bytes of all tokens along the grammar, and remembered. What is too large is
// refused before anything is generated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "serve/batch/guide.hpp"
#include "serve/constrain/effort.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

inline constexpr std::size_t guide_masks_max = 512;              // that are remembered
inline constexpr std::size_t guide_bytes_max = 8 * 1024 * 1024;  // that it remembers, then it forgets
// Work is counted in edges of the grammar that are looked at. So many tokens are tried before anything is
// generated, with what its patterns have left of the form's effort: what is beyond that is refused.
inline constexpr int guide_ahead_tokens = 32;
// Then a mask may take so much, and all masks of a form that came with a request so much at first and for
// each token that is read: other answers wait meanwhile.
inline constexpr std::uint64_t guide_mask_work_max = 1'500'000;
inline constexpr std::uint64_t guide_first_work_max = 5'000'000;
inline constexpr std::uint64_t guide_token_work_max = 30'000;

// The tokens of a model in the order of their bytes, so that those which begin alike are read once. Made once
// for a model; any thread.
class TokenTable {
 public:
  // Tokens without bytes, and the ends, are no text.
  TokenTable(std::int64_t vocabulary, const std::function<std::string_view(Token)>& token_bytes,
             std::vector<Token> ends);

  struct Entry {
    Token token = 0;
    std::uint32_t first = 0;  // of its bytes
    std::uint32_t size = 0;
    std::uint32_t shared = 0;  // bytes that it begins with like the one before
  };
  std::span<const Entry> entries() const { return entries_; }
  std::string_view bytes(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.first, entry.size);
  }
  std::string_view bytes(Token token) const;
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(places_.size()); }
  std::span<const Token> ends() const { return ends_; }
  bool is_end(Token token) const;

 private:
  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> places_;  // of a token among the entries; -1: it is no text
  std::vector<Token> ends_;
};

// A failure, and not an invalid form, if the work was abandoned meanwhile: it stops soon after that is said.
Result<std::shared_ptr<Guide>> guide_of_pattern(std::shared_ptr<const TokenTable> tokens,
                                                std::string_view pattern, std::stop_token abandoned = {});
Result<std::shared_ptr<Guide>> guide_of_schema(std::shared_ptr<const TokenTable> tokens,
                                               std::string_view schema, std::stop_token abandoned = {});
Result<std::shared_ptr<Guide>> guide_of_any_object(std::shared_ptr<const TokenTable> tokens);

}  // namespace tutti::serve
