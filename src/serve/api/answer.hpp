// What a client is told, as text: whole answers, the chunks of a stream, usage, models and errors, in the
// shapes of OpenAI's API. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "serve/api/ask.hpp"
#include "serve/batch/request.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve::api {

// The bytes of a token, as logprobs show them.
using TokenBytes = std::function<std::string_view(Token)>;

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt's
};

struct Answer {
  std::string text;
  // Of its tokens, if logprobs were asked for: behind those of the prompt, if it is echoed.
  std::vector<Chosen> choices;
  Finish finish = Finish::length;
};

// What all that is said to one request has in common.
class Voice {
 public:
  Voice(Kind kind, std::string_view id, std::int64_t created_seconds, std::string_view model,
        TokenBytes token_bytes);

  std::string whole(const std::vector<Answer>& answers, const Usage& usage) const;

  // Vectors of length 1, from what the model knows behind each prompt.
  std::string embeddings(const std::vector<Answer>& answers, const Usage& usage, bool in_base64) const;

  // So many bytes of text has a vector of so many numbers, at most.
  static std::size_t vector_bytes_max(std::size_t numbers, bool in_base64);

  // Events of a stream, ready to be sent. The first one of an answer of a conversation says who speaks.
  std::string first_chunk(std::int32_t answer) const;
  // `text_begin`: letters of the answer's tokens that came before, for the logprobs of completions.
  std::string chunk(std::int32_t answer, std::string_view text, const std::vector<Chosen>& choices,
                    bool with_logprobs, std::size_t text_begin, const Finish* finish) const;
  std::string usage_chunk(const Usage& usage) const;
  // Of tokens, which may begin or end within a letter: it counts where it begins.
  std::size_t letters_of(const std::vector<Token>& tokens) const;

 private:
  std::string logprobs(const std::vector<Chosen>& choices, std::size_t text_begin) const;

  Kind kind_;
  std::string head_;        // of a chunk: up to the list of choices
  std::string whole_head_;  // of a whole answer
  std::string model_;
  TokenBytes token_bytes_;
};

// Stands before an event of a stream and tells by which tokens it is more than those before it; clients pass
// it over. With all of them the answer can be resumed.
std::string tokens_line(std::span<const Token> tokens);

inline constexpr std::string_view last_event = "data: [DONE]\n\n";

// "stop" or "length"; what was cut off otherwise has an error instead.
std::string_view finish_reason(Finish finish);

struct ModelCard {
  std::string id;
  std::int64_t created_seconds = 0;
  std::int64_t context = 0;
  std::string parent;  // of an adapter: the model that it belongs to
};
std::string model_text(const ModelCard& card);
std::string models_text(std::span<const ModelCard> cards);

// {"error":{"message","type","param","code"}}; `param` is the error's context.
std::string error_text(int status, const Error& error, std::string_view code = {});
// The same as the event of a stream.
std::string error_event(int status, const Error& error);

}  // namespace tutti::serve::api
