// Learns a byte-level BPE from text, split into words like GPT-2. The same text in any order gives the same
// tokenizer. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.hpp"
#include "learn/tokenizer/tokenizer.hpp"

namespace tutti::tokenizer {

constexpr std::int64_t trained_vocabulary_min = 257;  // the bytes and <|endoftext|>
constexpr std::int64_t trained_vocabulary_max = 1 << 20;
constexpr std::size_t trained_words_max = 1 << 23;  // different ones; words that come later are not counted

class Trainer {
 public:
  void add(std::string_view text);

  // Hears how many tokens there are of how many. False ends the work, as a failure.
  using Progress = std::function<bool(std::int64_t done, std::int64_t wanted)>;
  // Fewer tokens than wanted if nothing in the text occurs twice any more.
  Result<Tokenizer> train(std::int64_t vocabulary, const Progress& progress = {}) const;

 private:
  void count(std::string_view word);

  std::unordered_map<std::string, std::int64_t> words_;
};

}  // namespace tutti::tokenizer
