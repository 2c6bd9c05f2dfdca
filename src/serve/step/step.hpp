// A step of a model as values: the tokens that are computed, the blocks that their keys and values lie in,
// and how the next tokens are chosen. What decides (serve/batch) and what computes (adapters of serve/model)
// both speak it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti::serve {

using Token = std::int32_t;
using BlockId = std::int32_t;

inline constexpr Token no_token = -1;
// In place of a token that was to be chosen: the row has no numbers that it could be chosen by.
inline constexpr Token no_number = -2;

struct Limits {
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;          // positions of one sequence at most
  std::int32_t block_tokens = 16;    // positions that one block holds
  std::int32_t blocks = 0;           // reserved at the start: there are never more
  std::int32_t step_tokens_max = 0;  // of all chunks of a step
  std::int32_t step_rows_max = 0;    // rows of logits of a step
  std::int32_t adapters = 0;         // that a chunk may have, counted from 1 on
};

// Tokens of one sequence that a step computes. Its keys and values of earlier positions are in its blocks
// already.
struct Chunk {
  std::span<const Token> tokens;
  std::int64_t first = 0;           // the position of the first of them
  std::span<const BlockId> blocks;  // of the sequence: the n-th holds the positions from n * block_tokens on
  std::int32_t rows = 0;            // logits are wanted after each of the last so many tokens
  std::int32_t adapter = 0;         // 0: the model as it is
  // Its one token is what this choice of the step before comes to, which nobody knows yet; -1: its tokens are
  // known. Only for models that work ahead.
  std::int32_t follows = -1;
};

// What the model knows of a text, the numbers that its head reads, as one vector: those of the last token, or
// the mean of those of all tokens.
enum class Pooling { none, last, mean };

// How a token is chosen from a row of logits. Everything that it depends on is in here, so that the same
// request gives the same tokens whatever runs beside it.
struct Choice {
  std::int32_t row = 0;    // of the step, counted over its chunks
  float temperature = 0;   // 0: the largest, the first of several
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  double uniform = 0;  // a number in [0, 1) that is this token's own
  // Added to the logits, after the penalties: pairs of token and bias.
  std::span<const std::pair<Token, float>> biases;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // Tokens so far with their counts: all of them for repetition, those that were generated for the others.
  struct Seen {
    Token token = 0;
    std::int32_t generated = 0;
  };
  std::span<const Seen> seen;
  // One bit a token, those that may come; empty: all.
  std::span<const std::uint64_t> allowed;
  Token given = no_token;  // the token is not chosen: it is this one, and only what is known of it is wanted
  std::int32_t logprobs = -1;  // of so many of the likeliest tokens; -1: none, not even of the chosen one
  // What the model knows is wanted, too: at the row (last), or the sum over all tokens of the row's chunk
  // (mean).
  Pooling pooling = Pooling::none;
};

// Whether it can be made where the logits are, by the numbers in front alone.
inline bool is_plain(const Choice& choice) {
  return choice.biases.empty() && choice.seen.empty() && choice.allowed.empty() && choice.logprobs < 0 &&
         choice.given == no_token && choice.pooling == Pooling::none;
}

struct Logprob {
  Token token = 0;
  float value = 0;
};

struct Chosen {
  Token token = 0;                 // or no_token: nothing may come; or no_number
  float logprob = 0;               // if logprobs were asked for
  std::vector<Logprob> likeliest;  // largest first
  // What the model knows, if it was asked for; a device that does not keep it leaves them empty.
  std::vector<float> hidden;
  std::vector<double> hidden_sum;  // exact enough for its parts to be added in any grouping
};

}  // namespace tutti::serve
