#include "serve/api/answer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <span>

#include "base/json/write.hpp"
#include "base/text.hpp"

namespace tutti::serve::api {
namespace {

std::string quoted(std::string_view text) { return json::write(json::Value(text)); }

std::string number(float value) { return json::write(static_cast<double>(value)); }

json::Value usage_value(const Usage& usage) {
  return json::Object{{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                      {"prompt_tokens_details", json::Object{{"cached_tokens", usage.cached_tokens}}}};
}

std::string event(std::string text) { return "data: " + std::move(text) + "\n\n"; }

std::size_t begun_letters(std::string_view bytes) {
  return static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

std::string error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "overloaded_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

std::vector<float> of_length_one(std::vector<float> vector) {
  double squares = 0;
  for (const float number : vector) squares += static_cast<double>(number) * number;
  const auto scale = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0);
  for (float& number : vector) number *= scale;
  return vector;
}

// "-1.2345679e-05", with its comma
constexpr std::size_t number_bytes_max = 15;
// What stands around a vector.
constexpr std::size_t vector_frame_bytes_max = 64;

// The fewest digits that read back as the same float: half as many as a double would need for it.
std::string number_list(const std::vector<float>& numbers) {
  std::string text = "[";
  text.reserve(numbers.size() * number_bytes_max + 2);
  std::array<char, number_bytes_max> shortest{};
  for (const float& each : numbers) {
    if (&each != numbers.data()) text += ',';
    text.append(shortest.data(), std::to_chars(shortest.begin(), shortest.end(), each).ptr);
  }
  return text + "]";
}

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t nth = 0; nth < 3; ++nth)
      group = group << 8U | (nth < count ? std::to_integer<std::uint32_t>(bytes[at + nth]) : 0U);
    for (std::size_t nth = 0; nth < 4; ++nth)
      text += nth <= count ? letters[group >> (18 - 6 * nth) & 0x3FU] : '=';
  }
  return text;
}

// {"token":…,"logprob":…,"bytes":[…]} without the closing brace.
std::string token_open(std::string_view bytes, float logprob) {
  std::string text =
      "{\"token\":" + quoted(valid_utf8(bytes)) + ",\"logprob\":" + number(logprob) + ",\"bytes\":[";
  for (std::size_t at = 0; at < bytes.size(); ++at)
    text += (at == 0 ? "" : ",") + std::to_string(static_cast<unsigned char>(bytes[at]));
  return text + "]";
}

}  // namespace

Voice::Voice(Kind kind, std::string_view id, std::int64_t created_seconds, std::string_view model,
             TokenBytes token_bytes)
    : kind_(kind), model_(model), token_bytes_(std::move(token_bytes)) {
  const std::string rest =
      ",\"created\":" + std::to_string(created_seconds) + ",\"model\":" + quoted(model) + ",\"choices\":[";
  const std::string begin = "{\"id\":" + quoted(id) + ",\"object\":\"";
  head_ = begin + (kind == Kind::chat ? "chat.completion.chunk\"" : "text_completion\"") + rest;
  whole_head_ = begin + (kind == Kind::chat ? "chat.completion\"" : "text_completion\"") + rest;
}

std::string Voice::logprobs(const std::vector<Chosen>& choices, std::size_t text_begin) const {
  if (kind_ == Kind::chat) {
    std::string text = "{\"content\":[";
    for (const Chosen& chosen : choices) {
      if (&chosen != choices.data()) text += ',';
      text += token_open(token_bytes_(chosen.token), chosen.logprob) + ",\"top_logprobs\":[";
      for (const Logprob& likely : chosen.likeliest) {
        if (&likely != chosen.likeliest.data()) text += ',';
        text += token_open(token_bytes_(likely.token), likely.value) + "}";
      }
      text += "]}";
    }
    return text + "],\"refusal\":null}";
  }
  std::string tokens;
  std::string values;
  std::string likeliest;
  std::string offsets;
  for (const Chosen& chosen : choices) {
    const std::string comma = &chosen == choices.data() ? "" : ",";
    const std::string_view bytes = token_bytes_(chosen.token);
    tokens += comma + quoted(valid_utf8(bytes));
    offsets += comma + std::to_string(text_begin);
    text_begin += begun_letters(bytes);
    // The first token of a prompt is after nothing.
    if (std::isnan(chosen.logprob)) {
      values += comma + "null";
      likeliest += comma + "null";
      continue;
    }
    values += comma + number(chosen.logprob);
    // Tokens that are written alike share a key: the likelier one, which comes first, has it.
    json::Object likely;
    for (const Logprob& each : chosen.likeliest) {
      const std::string key = valid_utf8(token_bytes_(each.token));
      if (likely.find(key) == nullptr) likely[key] = static_cast<double>(each.value);
    }
    likeliest += comma + json::write(likely);
  }
  return "{\"tokens\":[" + tokens + "],\"token_logprobs\":[" + values + "],\"top_logprobs\":[" + likeliest +
         "],\"text_offset\":[" + offsets + "]}";
}

std::string Voice::whole(const std::vector<Answer>& answers, const Usage& usage) const {
  std::string text = whole_head_;
  for (std::size_t at = 0; at < answers.size(); ++at) {
    const Answer& answer = answers[at];
    text += at == 0 ? "{" : ",{";
    text += "\"index\":" + std::to_string(at) + ",";
    text += kind_ == Kind::chat ? "\"message\":{\"role\":\"assistant\",\"content\":" + quoted(answer.text) +
                                      ",\"refusal\":null}"
                                : "\"text\":" + quoted(answer.text);
    text += ",\"logprobs\":" + (answer.choices.empty() ? "null" : logprobs(answer.choices, 0));
    text += ",\"finish_reason\":" + quoted(finish_reason(answer.finish)) + "}";
  }
  return text + "],\"usage\":" + json::write(usage_value(usage)) + "}\n";
}

std::string Voice::embeddings(const std::vector<Answer>& answers, const Usage& usage, bool in_base64) const {
  std::string text = "{\"object\":\"list\",\"data\":[";
  for (std::size_t at = 0; at < answers.size(); ++at) {
    const std::vector<float> vector = of_length_one(answers[at].choices.front().hidden);
    text += (at == 0 ? "" : ",") + std::string("{\"object\":\"embedding\",\"index\":") + std::to_string(at) +
            ",\"embedding\":";
    text += in_base64 ? quoted(base64(std::as_bytes(std::span(vector)))) : number_list(vector);
    text += "}";
  }
  const json::Value counted =
      json::Object{{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}};
  return text + "],\"model\":" + quoted(model_) + ",\"usage\":" + json::write(counted) + "}\n";
}

std::size_t Voice::vector_bytes_max(std::size_t numbers, bool in_base64) {
  return vector_frame_bytes_max +
         (in_base64 ? (numbers * sizeof(float) + 2) / 3 * 4 : numbers * number_bytes_max);
}

std::string Voice::first_chunk(std::int32_t answer) const {
  return event(
      head_ + "{\"index\":" + std::to_string(answer) +
      ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}");
}

std::string Voice::chunk(std::int32_t answer, std::string_view text, const std::vector<Chosen>& choices,
                         bool with_logprobs, std::size_t text_begin, const Finish* finish) const {
  std::string made = head_ + "{\"index\":" + std::to_string(answer) + ",";
  if (kind_ == Kind::completion) {
    made += "\"text\":" + quoted(text);
  } else if (text.empty() && choices.empty()) {
    made += "\"delta\":{}";
  } else {
    made += "\"delta\":{\"content\":" + quoted(text) + "}";
  }
  made += ",\"logprobs\":" + (with_logprobs && !choices.empty() ? logprobs(choices, text_begin) : "null");
  made += ",\"finish_reason\":" + (finish == nullptr ? "null" : quoted(finish_reason(*finish))) + "}]}";
  return event(std::move(made));
}

std::string Voice::usage_chunk(const Usage& usage) const {
  return event(head_ + "],\"usage\":" + json::write(usage_value(usage)) + "}");
}

std::size_t Voice::letters_of(const std::vector<Token>& tokens) const {
  std::size_t letters = 0;
  for (const Token token : tokens) letters += begun_letters(token_bytes_(token));
  return letters;
}

std::string tokens_line(std::span<const Token> tokens) {
  std::string text = ": tutti";
  for (const Token token : tokens) text += " " + std::to_string(token);
  return text + "\n";
}

std::string_view finish_reason(Finish finish) { return finish == Finish::stop ? "stop" : "length"; }

std::string model_text(const ModelCard& card) {
  json::Object shown{{"id", card.id},
                     {"object", "model"},
                     {"created", card.created_seconds},
                     {"owned_by", "tutti"},
                     {"max_model_len", card.context}};
  if (!card.parent.empty()) shown["parent"] = card.parent;
  return json::write(shown);
}

std::string models_text(std::span<const ModelCard> cards) {
  std::string data;
  for (const ModelCard& card : cards) data += (data.empty() ? "" : ",") + model_text(card);
  return "{\"object\":\"list\",\"data\":[" + data + "]}\n";
}

std::string error_text(int status, const Error& error, std::string_view code) {
  const bool has_field = !error.context().empty();
  std::string message = (has_field ? error.context() + ": " : "") + error.message();
  if (!error.remedy().empty()) message += "; " + error.remedy();
  return json::write(json::Object{
             {"error", json::Object{{"message", message},
                                    {"type", error_type(status)},
                                    {"param", has_field ? json::Value(error.context()) : json::Value()},
                                    {"code", code.empty() ? json::Value() : json::Value(code)}}}}) +
         "\n";
}

std::string error_event(int status, const Error& error) {
  std::string text = error_text(status, error);
  text.pop_back();
  return event(std::move(text));
}

}  // namespace tutti::serve::api
