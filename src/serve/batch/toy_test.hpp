// A model for tests that notices every wrong block, position and prefix: what it keeps of a token follows
// from all tokens before it, is read back through the blocks, and what stood in a block before is poison. Its
// text repeats itself, so that guesses come true. One thread at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "base/index.hpp"
#include "base/prng.hpp"
#include "serve/batch/choose.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

class Toy {
 public:
  explicit Toy(const Limits& limits)
      : limits_(limits), slots_(at(limits.blocks) * at(limits.block_tokens), poison) {}

  const Limits& limits() const { return limits_; }

  // Chunks may follow what was chosen last.
  void step(std::span<const Chunk> chunks) {
    rows_.clear();
    hidden_.clear();
    hidden_sums_.clear();
    std::size_t tokens = 0;
    for (const Chunk& chunk : chunks) {
      tokens += chunk.tokens.size();
      TUTTI_CHECK(!chunk.tokens.empty() && at(chunk.rows) <= chunk.tokens.size());
      for (std::size_t nth = 0; nth < chunk.tokens.size(); ++nth) {
        const std::int64_t position = chunk.first + static_cast<std::int64_t>(nth);
        write(chunk, position,
              chunk.follows < 0 ? chunk.tokens[nth] : std::max(last_.at(at(chunk.follows)).token, 0));
        if (nth + at(chunk.rows) < chunk.tokens.size()) continue;
        rows_.push_back(row(chunk, position));
        hidden_.push_back(hidden(chunk, position));
      }
      hidden_sums_.insert(hidden_sums_.end(), at(chunk.rows), hidden_sum(chunk));
    }
    TUTTI_CHECK(tokens <= at(limits_.step_tokens_max) && rows_.size() <= at(limits_.step_rows_max));
    ++steps;
  }

  std::vector<Chosen> choose(std::span<const Choice> choices) {
    std::vector<Chosen> chosen;
    for (const Choice& choice : choices) {
      chosen.push_back(chooser_.choose(rows_.at(at(choice.row)), choice));
      if (choice.pooling == Pooling::last) chosen.back().hidden = hidden_[at(choice.row)];
      if (choice.pooling == Pooling::mean) chosen.back().hidden_sum = hidden_sums_[at(choice.row)];
    }
    last_ = chosen;
    return chosen;
  }
  const std::vector<float>& logits(std::int32_t row) const { return rows_.at(at(row)); }

  std::int64_t steps = 0;
  Token breaks = no_token;  // from this token on what is computed of a sequence is no number

 private:
  static constexpr std::uint64_t poison = 0xDEADDEADDEADDEAD;
  static constexpr std::uint64_t not_a_number = 0xBAD0BAD0BAD0BAD0;

  std::uint64_t& slot(const Chunk& chunk, std::int64_t position) {
    const BlockId block = chunk.blocks[at(position / limits_.block_tokens)];
    TUTTI_CHECK(block >= 0 && block < limits_.blocks);
    return slots_[at(block) * at(limits_.block_tokens) + at(position % limits_.block_tokens)];
  }

  void write(const Chunk& chunk, std::int64_t position, Token token) {
    TUTTI_CHECK(position < limits_.context && token >= 0 && token < limits_.vocabulary);
    const std::uint64_t before =
        position == 0 ? mixed(static_cast<std::uint64_t>(chunk.adapter)) : slot(chunk, position - 1);
    TUTTI_CHECK(before != poison, "what was never computed is read");
    const bool is_broken = before == not_a_number || token == breaks;
    slot(chunk, position) =
        is_broken ? not_a_number : mixed(before ^ static_cast<std::uint64_t>(token) << 20U);
    for (std::int64_t later = position + 1; later % limits_.block_tokens != 0; ++later)
      slot(chunk, later) = poison;
  }

  std::vector<float> row(const Chunk& chunk, std::int64_t position) {
    if (slot(chunk, position) == not_a_number) return std::vector<float>(at(limits_.vocabulary), NAN);
    std::uint64_t hash = 0;
    for (std::int64_t read = 0; read <= position; ++read) hash = mixed(hash ^ slot(chunk, read));
    std::vector<float> logits(at(limits_.vocabulary));
    Prng random(hash);
    for (float& logit : logits) logit = static_cast<float>(random.unit() * 4);
    // Mostly a short circle of tokens, which one depends on everything before.
    if (random.chance(0.8)) logits[at((position + static_cast<std::int64_t>(hash % 2)) % 7 + 3)] += 6;
    return logits;
  }

  std::vector<float> hidden(const Chunk& chunk, std::int64_t position) {
    if (slot(chunk, position) == not_a_number) return {0, NAN, 0};
    Prng random(slot(chunk, position));
    std::vector<float> made(3);
    for (float& number : made) number = static_cast<float>(random.unit() - 0.5);
    return made;
  }

  std::vector<double> hidden_sum(const Chunk& chunk) {
    std::vector<double> sum(3);
    for (std::size_t nth = 0; nth < chunk.tokens.size(); ++nth) {
      const auto one = hidden(chunk, chunk.first + static_cast<std::int64_t>(nth));
      for (std::size_t which = 0; which < sum.size(); ++which) sum[which] += static_cast<double>(one[which]);
    }
    return sum;
  }

  Limits limits_;
  std::vector<std::uint64_t> slots_;
  std::vector<std::vector<float>> rows_;
  std::vector<std::vector<float>> hidden_;        // of each row
  std::vector<std::vector<double>> hidden_sums_;  // of each row's chunk
  std::vector<Chosen> last_;
  Chooser chooser_;
};

// Tokens as letters, some of them longer: "a", "b", … and "ab", "cd".
inline std::string_view toy_bytes(Token token) {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> made;
    for (int letter = 0; letter < 26; ++letter) made.emplace_back(1, static_cast<char>('a' + letter));
    for (const char* longer : {"ab", "cde", "ge", "f", "\xC3", "\xA9", "\xE2\x82", "\xAC", " ", ". "})
      made.emplace_back(longer);
    return made;
  }();
  return texts[at(token) % texts.size()];
}

}  // namespace tutti::serve
