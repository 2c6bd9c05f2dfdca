#include "serve/server/prepare.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "serve/api/answer.hpp"
#include "serve/program/within_memory.hpp"

namespace tutti::serve {
namespace {

// How much shorter a tokenizer's normalizer may make a text before it cuts it.
constexpr std::size_t normalized_share = 4;

// How ChatML ends a message, for models that were given it for want of a template of their own.
constexpr std::string_view message_end = "<|im_end|>";
// To what the errors of a template belong (serve/chat).
constexpr std::string_view chat_template = "chat template";

std::vector<Token> as_tokens(const std::vector<std::uint32_t>& ids) {
  return std::vector<Token>(ids.begin(), ids.end());
}

std::int64_t seconds_of(Instant now) {
  return std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
}

chat::Moment moment_of(std::time_t seconds) {
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return {.year = parts.tm_year + 1900,
          .month = parts.tm_mon + 1,
          .day = parts.tm_mday,
          .hour = parts.tm_hour,
          .minute = parts.tm_min,
          .second = parts.tm_sec};
}

// A prompt goes by the name of the field that it came in.
Error in_fields_of(api::Kind kind, Error error) {
  if (error.context() != "prompt" || kind == api::Kind::completion) return error;
  return invalid(error.message())
      .within(kind == api::Kind::chat ? "messages" : "input")
      .remedy(error.remedy());
}

// What a template finds wrong it finds in the messages, unless another field is named.
Error in_messages(const Error& error) {
  if (!error.context().empty() && !error.context().starts_with(chat_template)) return error;
  return Error(error.code(), error.text()).within("messages").remedy(error.remedy());
}

// Bytes of prompts that all answers to a request say. They are collected, or said by a stream at once.
constexpr std::size_t echo_bytes_max = std::size_t{16} << 20;

using Prompts = std::vector<Prepared::Prompt>;

bool has_some(const json::Value* list) {
  return list != nullptr && list->list() != nullptr && !list->list()->empty();
}

// What the template leaves out the model would never hear of.
Result<> check_tools(const api::Ask& ask, const chat::ChatTemplate& chosen) {
  if (has_some(&ask.tools) && !chosen.names_tools())
    return invalid("this model's chat template knows no tools")
        .within("tools")
        .remedy("tell of them in a message");
  if (!has_some(&ask.messages) || chosen.names_tool_calls()) return {};
  for (const json::Value& message : *ask.messages.list()) {
    if (has_some(message.find("tool_calls")))
      return invalid("this model's chat template knows no calls of tools")
          .within("messages")
          .remedy("tell of them in the content of the message");
  }
  return {};
}

Result<> check_echo_bytes(const api::Ask& ask, const Prompts& prompts) {
  if (!ask.echoes) return {};
  std::size_t bytes = 0;
  for (const Prepared::Prompt& prompt : prompts)
    bytes += prompt.begin.size() * static_cast<std::size_t>(ask.answers);
  const std::size_t most = ask.streams ? echo_bytes_max / 4 : echo_bytes_max;
  if (bytes <= most) return {};
  return invalid("the echoes of all prompts have at most " + std::to_string(most) + " bytes, not " +
                 std::to_string(bytes))
      .within("prompt")
      .remedy("ask for fewer prompts or answers at a time");
}

// All answers say their prompt, and a stream says it at once.
Result<> check_echoes(const api::Ask& ask, const Prompts& prompts) {
  if (!ask.echoes || !ask.wants_logprobs()) return {};
  std::int64_t logprobs = 0;
  for (const Prepared::Prompt& prompt : prompts)
    logprobs += static_cast<std::int64_t>(prompt.tokens.size()) * ask.answers * (1 + ask.sampling.logprobs);
  const std::int64_t most = ask.streams ? prompt_logprobs_max / 4 : prompt_logprobs_max;
  if (logprobs <= most) return {};
  return invalid("the echoes of all prompts have at most " + std::to_string(most) + " logprobs, not " +
                 std::to_string(logprobs))
      .within("prompt")
      .remedy("ask for fewer prompts, answers or logprobs at a time");
}

// Refused before it is computed, where the request says how much it may be; else when it is too much.
Result<> check_whole(const api::Ask& ask, const Prompts& prompts) {
  if (ask.streams || !ask.wants_logprobs() || !ask.tokens_max) return {};
  std::int64_t tokens = 0;
  for (const Prepared::Prompt& prompt : prompts)
    tokens += *ask.tokens_max + (ask.echoes ? static_cast<std::int64_t>(prompt.tokens.size()) : 0);
  if (tokens * ask.answers * (1 + ask.sampling.logprobs) <= api::whole_logprobs_max) return {};
  return api::too_many_logprobs();
}

Prepared beyond_context(const api::Ask& ask, Error why) {
  Prepared refused;
  refused.ask.kind = ask.kind;
  refused.ask.model = ask.model;
  refused.beyond_context = std::move(why);
  return refused;
}

}  // namespace

Request Prepared::request_of(std::size_t nth) const {
  Request made = request;
  made.prompt = prompts[nth].tokens;
  made.tokens_max = prompts[nth].tokens_max;
  made.sampling.seed += nth;
  return made;
}

Preparation::Preparation(const Loaded& loaded, const Limits& limits) : loaded_(loaded), limits_(limits) {
  std::size_t longest = 1;
  const tokenizer::Tokenizer& tokenizer = loaded.source.tokenizer;
  for (std::int64_t token = 0; token < tokenizer.vocabulary(); ++token)
    longest = std::max(longest, tokenizer.token_bytes(static_cast<std::uint32_t>(token)).size());
  text_bytes_max_ = normalized_share * longest * static_cast<std::size_t>(limits.context);
}

bool Preparation::knows(const std::string& model) const {
  return model.empty() || model == loaded_.source.name ||
         std::find(loaded_.adapters.begin(), loaded_.adapters.end(), model) != loaded_.adapters.end();
}

Result<> Preparation::check_length(const api::Prompt& prompt) const {
  const auto* const text = std::get_if<std::string>(&prompt);
  if (text == nullptr || text->size() <= text_bytes_max_) return {};
  return invalid("a text of " + std::to_string(text->size()) + " bytes is longer than any that fits into " +
                 std::to_string(limits_.context) + " tokens")
      .within("prompt")
      .remedy("shorten it");
}

std::vector<Token> Preparation::tokens_of(api::Kind kind, const api::Prompt& prompt,
                                          const std::stop_token& abandoned) const {
  if (const auto* const given = std::get_if<std::vector<Token>>(&prompt)) return *given;
  const Source& source = loaded_.source;
  const auto& text = std::get<std::string>(prompt);
  if (kind == api::Kind::chat)
    return as_tokens(source.tokenizer.encode(
        text, {.special = true, .frame = false, .guards = true, .abandoned = abandoned}));
  // The caller writes all of the prompt, so that special tokens in it are meant.
  auto tokens =
      as_tokens(source.tokenizer.encode(text, {.special = true, .frame = true, .abandoned = abandoned}));
  if (tokens.empty() && source.settings.begin) tokens.push_back(static_cast<Token>(*source.settings.begin));
  if (tokens.empty() && source.settings.end) tokens.push_back(static_cast<Token>(*source.settings.end));
  return tokens;
}

std::string Preparation::text_of(const api::Prompt& prompt) const {
  if (const auto* const text = std::get_if<std::string>(&prompt)) return *text;
  const auto& tokens = std::get<std::vector<Token>>(prompt);
  return loaded_.source.tokenizer.decode(std::vector<std::uint32_t>(tokens.begin(), tokens.end()));
}

Result<std::string> Preparation::conversation(const api::Ask& ask, std::int64_t created_seconds,
                                              const std::stop_token& abandoned) const {
  const Source& source = loaded_.source;
  const Result<chat::ChatTemplate>& chosen = has_some(&ask.tools) ? loaded_.chat_with_tools : loaded_.chat;
  if (!chosen)
    return invalid("the model's chat template cannot be followed: " + chosen.error().text())
        .within("messages")
        .remedy("/v1/completions takes a prompt as it is");
  if (auto fine = check_tools(ask, *chosen); !fine) return std::move(fine).error();
  auto text = chosen->prompt({.messages = ask.messages,
                              .tools = ask.tools,
                              .arguments = ask.template_arguments,
                              .generation_prompt = ask.generation_prompt,
                              .continues_last = ask.continues_last,
                              .begin_text = source.settings.begin_text,
                              .end_text = source.settings.end_text,
                              .now = moment_of(created_seconds),
                              .guard = [&](std::string_view own) { return source.tokenizer.guarded(own); },
                              .abandoned = abandoned});
  if (!text) return in_messages(text.error());
  return text;
}

// Refused before anything is computed: their numbers would be collected in vain.
Result<> Preparation::check_vectors(const api::Ask& ask) const {
  if (ask.kind != api::Kind::embedding) return {};
  const auto numbers = static_cast<std::size_t>(loaded_.source.shape.hidden);
  const std::size_t most = api::vectors_bytes_max / api::Voice::vector_bytes_max(numbers, ask.in_base64);
  if (ask.prompts.size() <= most) return {};
  return invalid("the vectors of this model have " + std::to_string(numbers) + " numbers: at most " +
                 std::to_string(most) + " of them are an answer")
      .within("input")
      .remedy(ask.in_base64 ? "send fewer inputs at a time"
                            : "send fewer inputs at a time, or encoding_format base64");
}

std::shared_ptr<const TokenTable> Preparation::table() {
  const std::scoped_lock lock(mutex_);
  if (!table_) {
    const auto& stops = loaded_.source.settings.stops;
    table_ = std::make_shared<const TokenTable>(limits_.vocabulary, loaded_.token_bytes(),
                                                std::vector<Token>(stops.begin(), stops.end()));
  }
  return table_;
}

Result<std::shared_ptr<Guide>> Preparation::guide(const api::Form& form, const std::stop_token& abandoned) {
  // Another may have made it while this one waited.
  if (auto known = guides_.find(form)) return known;
  auto made = [&]() -> Result<std::shared_ptr<Guide>> {
    switch (form.kind) {
      case api::Form::Kind::free:
        break;
      case api::Form::Kind::any_object:
        return guide_of_any_object(table());
      case api::Form::Kind::schema:
        return guide_of_schema(table(), form.text, abandoned);
      case api::Form::Kind::pattern:
        return guide_of_pattern(table(), form.text, abandoned);
    }
    return std::shared_ptr<Guide>();
  }();
  if (!made) {
    const bool is_pattern = form.kind == api::Form::Kind::pattern;
    return invalid(made.error().text())
        .within(is_pattern ? "regex" : "response_format")
        .remedy(made.error().remedy());
  }
  return guides_.keep(form, std::move(*made));
}

void Preparation::add_stops(const api::Ask& ask, Request& request) const {
  request.stop_texts = ask.stop_texts;
  request.stop_ids = ask.stop_ids;
  if (ask.ignores_end) return;
  const Source& source = loaded_.source;
  for (const std::uint32_t stop : source.settings.stops) request.stop_ids.push_back(static_cast<Token>(stop));
  if (ask.kind != api::Kind::chat || !loaded_.chat || !loaded_.chat->is_fallback()) return;
  const auto token = source.tokenizer.find(message_end);
  if (token && *token < limits_.vocabulary) {
    request.stop_ids.push_back(static_cast<Token>(*token));
  } else {
    request.stop_texts.emplace_back(message_end);
  }
}

Result<Prepared> Preparation::prepare(api::Kind kind, std::string_view body, const Facts& facts) {
  return within_memory_of_errand([&] { return read(kind, body, facts); });
}

Result<Prepared> Preparation::read(api::Kind kind, std::string_view body, const Facts& facts) {
  auto ask = api::read_ask(kind, body);
  if (!ask) return std::move(ask).error().as(ErrorCode::invalid);
  Prepared prepared;
  if (!knows(ask->model)) {
    prepared.ask = std::move(*ask);
    return prepared;
  }
  if (kind == api::Kind::embedding && !loaded_.source.pooling)
    return invalid("this model gives no embeddings: " + loaded_.source.pooling.error().text())
        .remedy("start it with --pooling mean or --pooling last");
  if (auto fine = check_vectors(*ask); !fine) return std::move(fine).error();
  const bool is_free = ask->form.kind == api::Form::Kind::free;
  Request& request = prepared.request;
  request = {.key = facts.key,
             // What nobody wants is not told.
             .wants_answer = kind != api::Kind::embedding && ask->tokens_max != 0,
             .answers = ask->answers,
             .sampling = ask->sampling,
             .guide = is_free ? nullptr : guides_.find(ask->form),
             .pooling = kind == api::Kind::embedding ? *loaded_.source.pooling : Pooling::none,
             .prompt_logprobs = ask->echoes && ask->wants_logprobs()};
  request.sampling.seed = ask->seed.value_or(facts.seed);
  if (ask->resume) request.resumed = ask->resume->tokens;
  prepared.created_seconds = ask->resume ? ask->resume->created_seconds : seconds_of(facts.now);
  add_stops(*ask, request);
  prepared.wants_form = !is_free && !request.guide;
  const std::size_t count = kind == api::Kind::chat ? 1 : ask->prompts.size();
  for (std::size_t nth = 0; nth < count; ++nth) {
    std::optional<api::Prompt> talk;
    if (kind == api::Kind::chat) {
      auto text = conversation(*ask, prepared.created_seconds, facts.abandoned);
      if (!text && !facts.abandoned.stop_requested())
        return in_fields_of(kind, std::move(text).error().as(ErrorCode::invalid));
      talk = std::move(text).value_or("");
    }
    const api::Prompt& prompt = talk ? *talk : ask->prompts[nth];
    if (auto fits = check_length(prompt); !fits)
      return beyond_context(*ask, in_fields_of(kind, std::move(fits).error()));
    auto tokens = tokens_of(kind, prompt, facts.abandoned);
    if (facts.abandoned.stop_requested()) return failed("nobody waits for this any more");
    const std::int64_t left = limits_.context - static_cast<std::int64_t>(tokens.size());
    request.prompt = std::move(tokens);
    request.tokens_max = std::max(ask->tokens_max.value_or(static_cast<std::int32_t>(
                                      std::clamp<std::int64_t>(left, 1, api::tokens_limit))),
                                  1);
    if (auto fits = check_room(request, limits_); !fits)
      return beyond_context(*ask, in_fields_of(kind, std::move(fits).error()));
    if (auto fine = check(request, limits_); !fine) return in_fields_of(kind, std::move(fine).error());
    prepared.prompts.push_back({.tokens = std::exchange(request.prompt, {}),
                                .tokens_max = request.tokens_max,
                                .begin = ask->echoes ? text_of(ask->prompts[nth]) : ""});
    if (auto fine = check_echo_bytes(*ask, prepared.prompts); !fine) return std::move(fine).error();
  }
  if (auto fine = check_echoes(*ask, prepared.prompts); !fine) return std::move(fine).error();
  if (auto fine = check_whole(*ask, prepared.prompts); !fine) return std::move(fine).error();
  ask->prompts.clear();
  ask->messages = nullptr;
  ask->tools = nullptr;
  prepared.ask = std::move(*ask);
  return prepared;
}

Result<> Preparation::add_form(Prepared& prepared, const std::stop_token& abandoned) {
  auto made = within_memory_of_errand([&] { return guide(prepared.ask.form, abandoned); });
  if (!made) return std::move(made).error();
  prepared.request.guide = std::move(*made);
  prepared.wants_form = false;
  return {};
}

}  // namespace tutti::serve
