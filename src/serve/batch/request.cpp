#include "serve/batch/request.hpp"

#include <algorithm>
#include <cmath>

#include "base/prng.hpp"

namespace tutti::serve {
namespace {

std::string counted(std::int64_t count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what);
}

bool within(float value, float low, float high) { return value >= low && value <= high; }  // NaN is not

Result<> check_tokens(std::span<const Token> tokens, std::string_view what, std::string_view field,
                      const Limits& limits) {
  for (const Token token : tokens) {
    if (token >= 0 && token < limits.vocabulary) continue;
    return invalid("token " + std::to_string(token) + " of " + std::string(what) +
                   " is not in the vocabulary of " + std::to_string(limits.vocabulary))
        .within(field);
  }
  return {};
}

Result<> check_sampling(const Sampling& sampling, const Limits& limits) {
  if (sampling.temperature != 0 && !within(sampling.temperature, temperature_min, temperature_max))
    return invalid("the temperature is 0 or between 0.01 and 100");
  if (sampling.top_k < 0) return invalid("top_k is negative; 0 means all tokens");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return invalid("top_p is above 0 and at most 1");
  if (!within(sampling.min_p, 0, 1)) return invalid("min_p is between 0 and 1");
  if (!within(sampling.repetition_penalty, 1 / penalty_max, penalty_max))
    return invalid("the repetition penalty is between 0.01 and 100, 1 means none");
  if (!within(sampling.presence_penalty, -penalty_max, penalty_max) ||
      !within(sampling.frequency_penalty, -penalty_max, penalty_max))
    return invalid("presence and frequency penalties are between -100 and 100");
  if (sampling.logprobs < -1 || sampling.logprobs > logprobs_max)
    return invalid("logprobs of at most " + counted(logprobs_max, "tokens are given"));
  if (sampling.biases.size() > biases_max)
    return invalid("a request has at most " + counted(biases_max, "biases"));
  for (const auto& [token, bias] : sampling.biases) {
    if (auto checked = check_tokens({&token, 1}, "a bias", "logit_bias", limits); !checked) return checked;
    if (!within(bias, -bias_max, bias_max)) return invalid("a bias is between -1000 and 1000");
  }
  return {};
}

Result<> check_prompt_logprobs(const Request& request) {
  if (!request.prompt_logprobs) return {};
  if (request.sampling.logprobs < 0 || request.pooling == Pooling::mean)
    return invalid("logprobs of a prompt go with those of its answer, and not with a mean");
  if (static_cast<std::int64_t>(request.prompt.size()) * (1 + request.sampling.logprobs) >
      prompt_logprobs_max)
    return invalid("a prompt has at most " + counted(prompt_logprobs_max, "logprobs"))
        .within("prompt")
        .remedy("shorten the prompt, or ask for fewer logprobs");
  return {};
}

Result<> check_stops(const Request& request, const Limits& limits) {
  if (request.stop_ids.size() > stop_ids_max + own_stop_ids_max)
    return invalid("a request has at most " + counted(stop_ids_max, "stop tokens"));
  if (auto checked = check_tokens(request.stop_ids, "the stop tokens", "stop_token_ids", limits); !checked)
    return checked;
  if (request.stop_texts.size() > stop_texts_max + own_stop_texts_max)
    return invalid("a request has at most " + counted(stop_texts_max, "stop texts"));
  for (const std::string& text : request.stop_texts) {
    if (text.empty() || text.size() > stop_text_bytes_max)
      return invalid("a stop text has 1 to " + counted(stop_text_bytes_max, "bytes"));
  }
  return {};
}

Result<> check_resumed(const Request& request, const Limits& limits) {
  if (request.resumed.empty()) return {};
  if (request.answers != 1 || !request.wants_answer || request.prompt_logprobs ||
      request.pooling != Pooling::none)
    return invalid("one answer alone can be resumed, and nothing is told of its prompt")
        .within("tutti_resume");
  if (static_cast<std::int64_t>(request.resumed.size()) > request.tokens_max)
    return invalid("the answer has " + counted(static_cast<std::int64_t>(request.resumed.size()), "tokens") +
                   " already, and up to " + std::to_string(request.tokens_max) + " are asked for")
        .within("tutti_resume");
  return check_tokens(request.resumed, "the answer", "tutti_resume", limits);
}

}  // namespace

std::string_view name_of(Finish finish) {
  switch (finish) {
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::cancelled:
      return "cancelled";
    case Finish::failed:
      return "failed";
    case Finish::lost:
      return "lost";
  }
  return "";
}

std::int64_t positions_of(std::int64_t prompt_tokens, std::int64_t tokens_max) {
  return prompt_tokens + tokens_max - 1;
}

Result<> check_room(const Request& request, const Limits& limits) {
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt + request.tokens_max - (request.wants_answer ? 0 : 1) > limits.context) {
    return invalid("the prompt has " + counted(prompt, "tokens and the answer up to ") +
                   std::to_string(request.tokens_max) + ", the model's context has " +
                   std::to_string(limits.context))
        .within("prompt")
        .remedy("shorten the prompt, or ask for fewer tokens");
  }
  const std::int64_t positions = positions_of(prompt, request.tokens_max);
  const std::int64_t room = std::int64_t{limits.blocks} * limits.block_tokens;
  if ((positions + limits.block_tokens - 1) / limits.block_tokens > limits.blocks) {
    return invalid("the prompt has " + counted(prompt, "tokens and the answer up to ") +
                   std::to_string(request.tokens_max) + ", there is memory for " + std::to_string(room))
        .within("prompt")
        .remedy("shorten the prompt, ask for fewer tokens, or give the model more memory");
  }
  return {};
}

Result<> check(const Request& request, const Limits& limits) {
  if (request.prompt.empty())
    return invalid("the prompt has no token").within("prompt").remedy("give it the token of the beginning");
  if (request.tokens_max < 1) return invalid("an answer has at least one token");
  if (request.answers < 1 || request.answers > answers_max)
    return invalid("a request has 1 to " + counted(answers_max, "answers"));
  if (request.key.size() > key_bytes_max)
    return invalid("a key has at most " + counted(key_bytes_max, "bytes"));
  if (request.adapter < 0 || request.adapter > limits.adapters)
    return invalid("there is no adapter " + std::to_string(request.adapter));
  if (auto checked = check_room(request, limits); !checked) return checked;
  if (auto checked = check_tokens(request.prompt, "the prompt", "prompt", limits); !checked) return checked;
  if (auto checked = check_resumed(request, limits); !checked) return checked;
  if (auto checked = check_sampling(request.sampling, limits); !checked) return checked;
  if (auto checked = check_prompt_logprobs(request); !checked) return checked;
  return check_stops(request, limits);
}

double uniform_of(std::uint64_t seed, std::int32_t answer, std::int64_t token) {
  const std::uint64_t own = mixed(mixed(seed) ^ static_cast<std::uint64_t>(answer));
  return static_cast<double>(mixed(own ^ static_cast<std::uint64_t>(token)) >> 11U) * 0x1.0p-53;
}

}  // namespace tutti::serve
