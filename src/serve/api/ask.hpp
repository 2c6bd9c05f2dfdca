// What a client asks for over HTTP, as values: OpenAI's completions and chat completions, and a few fields
// that other servers have taught clients (top_k, min_p, repetition_penalty, stop_token_ids, ignore_eos,
// regex, add_generation_prompt, continue_final_message, chat_template_kwargs); and embeddings; and one of
// tutti's own, tutti_resume. Every field has its bounds; a field that would change the answer and is not done
// here is refused by name, and one that would not is passed over. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json/value.hpp"
#include "base/result.hpp"
#include "serve/batch/request.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve::api {

inline constexpr std::size_t body_bytes_max = std::size_t{4} << 20;
// Values of its JSON: prompts may be lists of tokens, a conversation is texts.
inline constexpr std::size_t prompt_values_max = std::size_t{1} << 19;
inline constexpr std::size_t conversation_values_max = std::size_t{1} << 16;
inline constexpr std::size_t prompts_max = 128;   // of one request
inline constexpr std::size_t inputs_max = 2'048;  // of one for embeddings
inline constexpr std::size_t tools_max = 128;
inline constexpr std::int32_t completion_tokens_default = 16;
inline constexpr std::int32_t tokens_limit = 1 << 24;  // that may be asked for; the model's context is less

// Of a request whose stream lists the tokens that it tells, and what stands there.
inline constexpr std::string_view resumable_header = "tutti-resumable";
inline constexpr std::string_view resumable_value = "1";
inline constexpr std::size_t resumed_id_bytes_max = 128;

// Of the text of all vectors of a request, about: their numbers are collected, and then written as a whole.
inline constexpr std::size_t vectors_bytes_max = std::size_t{128} << 20;

// Of all answers to a request that does not stream, with those of the likeliest tokens: they are collected.
inline constexpr std::int64_t whole_logprobs_max = 1 << 20;

enum class Kind { completion, chat, embedding };

using Prompt = std::variant<std::string, std::vector<Token>>;

// The form that an answer must have.
struct Form {
  enum class Kind { free, any_object, schema, pattern };
  Kind kind = Kind::free;
  std::string text;  // the JSON of the schema with its keys in their order, or the pattern

  friend bool operator==(const Form&, const Form&) = default;
};

// An answer that another engine has begun, as far as its stream has told it.
struct Resume {
  std::string id;
  std::int64_t created_seconds = 0;
  std::vector<Token> tokens;  // none: it is answered from the beginning
};

struct Ask {
  Kind kind = Kind::completion;
  std::string model;  // empty: the one that there is

  // Of completions:
  std::vector<Prompt> prompts;  // of embeddings, too
  bool echoes = false;          // the answer begins with the prompt
  // Of embeddings:
  bool in_base64 = false;  // the numbers as their bytes
  // Of conversations:
  json::Value messages;
  json::Value tools;
  json::Value template_arguments;
  bool generation_prompt = true;  // the prompt ends where an answer begins
  bool continues_last = false;

  std::int32_t answers = 1;
  std::optional<std::int32_t>
      tokens_max;     // nothing: what the context leaves; 0: the prompt alone, if it echoes
  Sampling sampling;  // without its seed
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop_texts;
  std::vector<Token> stop_ids;
  bool ignores_end = false;  // the token that ends a text does not end the answer
  Form form;
  bool streams = false;
  bool usage_in_stream = false;
  std::optional<Resume> resume;  // then it streams one answer to one prompt, which is not echoed

  bool wants_logprobs() const { return sampling.logprobs >= 0; }
};

// The body of a request. What is wrong is invalid, within the name of the field if there is one.
Result<Ask> read_ask(Kind kind, std::string_view body);

// Why a request that does not stream is not answered with more of them.
Error too_many_logprobs();

// By which clients know that a shorter prompt would do.
inline constexpr std::string_view context_length_exceeded = "context_length_exceeded";

// JSON with the members of objects in the order in which they were read.
std::string write_in_order(const json::Value& value);

}  // namespace tutti::serve::api
