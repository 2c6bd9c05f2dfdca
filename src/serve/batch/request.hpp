// What somebody wants of a model, as values, and the bounds within which it may be wanted. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/id.hpp"
#include "base/result.hpp"
#include "serve/batch/guide.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

using RequestId = Id<struct RequestTag>;

inline constexpr std::int32_t answers_max = 128;
inline constexpr std::size_t stop_ids_max = 64;
inline constexpr std::size_t stop_texts_max = 16;
// That a model has of its own, beside those that are asked for.
inline constexpr std::size_t own_stop_ids_max = 128;
inline constexpr std::size_t own_stop_texts_max = 1;
inline constexpr std::size_t stop_text_bytes_max = 1024;
inline constexpr std::size_t biases_max = 1024;
inline constexpr std::int32_t logprobs_max = 20;
inline constexpr std::int64_t prompt_logprobs_max =
    1 << 18;  // of a prompt's tokens, with those of the likeliest
inline constexpr std::size_t key_bytes_max = 256;
inline constexpr float temperature_min = 0.01F;  // that is not 0
inline constexpr float temperature_max = 100;
inline constexpr float bias_max = 1000;
inline constexpr float penalty_max = 100;

// How tokens are chosen: the fields of a Choice that a request sets.
struct Sampling {
  float temperature = 0;
  std::int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<Token, float>> biases;
  std::int32_t logprobs = -1;
  std::uint64_t seed = 0;

  bool penalizes() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

struct Request {
  std::string key;  // who asks: the order is fair between keys
  std::vector<Token> prompt;
  // Of the one answer, which another engine has begun: it goes on behind these as if they were its own.
  std::vector<Token> resumed;
  std::int32_t adapter = 0;
  std::int32_t tokens_max = 16;  // of each answer
  bool wants_answer = true;      // false: what comes of the prompt is all, and the last token needs no place
  std::int32_t answers = 1;
  Sampling sampling;
  std::vector<Token> stop_ids;          // the answer ends with such a token, which is no part of its text
  std::vector<std::string> stop_texts;  // the answer ends before such a text
  std::shared_ptr<Guide> guide;         // what may come; null: everything
  // What the model knows of the prompt comes with the first token of the first answer.
  Pooling pooling = Pooling::none;
  bool prompt_logprobs = false;  // and so do logprobs of the prompt's own tokens, as many as of the answer's
};

enum class Finish {
  stop,       // by a token, a text or a guide that has nothing more
  length,     // tokens_max
  cancelled,  // nobody wants it any more
  failed,     // the model could not compute it, or nothing could come that its guide allows
  lost,       // the model went away; asked again, it may be answered
};
std::string_view name_of(Finish finish);

// The positions of all tokens of an answer that are computed; the last one never is.
std::int64_t positions_of(std::int64_t prompt_tokens, std::int64_t tokens_max);

// Whether its prompt and its answer fit into the context and the memory of a model with these limits.
Result<> check_room(const Request& request, const Limits& limits);
// That, and whether such a request can ever be answered at all.
Result<> check(const Request& request, const Limits& limits);

// The number in [0, 1) of the n-th token of an answer. It follows from these three alone, so that an answer
// does not depend on what is computed beside it.
double uniform_of(std::uint64_t seed, std::int32_t answer, std::int64_t token);

}  // namespace tutti::serve
