#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "serve/api/ask.hpp"
#include "serve/api/fields.hpp"

namespace tutti::serve::api {
namespace {

constexpr double temperature_asked_max = 2;
constexpr double penalty_asked_max = 2;
constexpr double bias_asked_max = 100;
constexpr std::int64_t top_k_max = 1 << 24;
constexpr std::size_t name_bytes_max = 1024;
constexpr std::int64_t created_seconds_max = std::int64_t{1} << 37;  // a year of four digits

std::optional<Token> token_of(const json::Value& value) {
  const auto whole = value.whole();
  if (!whole || *whole < 0 || *whole > std::numeric_limits<Token>::max()) return std::nullopt;
  return static_cast<Token>(*whole);
}

std::optional<std::vector<Token>> tokens_of(const json::Array& list) {
  std::vector<Token> tokens;
  tokens.reserve(list.size());
  for (const json::Value& each : list) {
    const auto token = token_of(each);
    if (!token) return std::nullopt;
    tokens.push_back(*token);
  }
  return tokens;
}

// A text, tokens, or a list of either.
void read_prompts(Fields& fields, const char* name, std::size_t most, Ask& ask) {
  constexpr const char* wrong = "must be a text, a list of tokens, or a list of such";
  const json::Value* const prompt = fields.find(name);
  if (prompt == nullptr) return fields.fail(name, "is missing");
  if (prompt->text() != nullptr) {
    ask.prompts.emplace_back(*prompt->text());
    return;
  }
  const json::Array* const list = prompt->list();
  if (list == nullptr || list->empty()) return fields.fail(name, wrong);
  if (list->front().number()) {
    auto tokens = tokens_of(*list);
    if (!tokens) return fields.fail(name, wrong);
    ask.prompts.emplace_back(std::move(*tokens));
    return;
  }
  if (list->size() > most)
    return fields.fail(name, "must have at most " + std::to_string(most) + " " + name + "s");
  for (const json::Value& each : *list) {
    if (each.text() != nullptr) {
      ask.prompts.emplace_back(*each.text());
      continue;
    }
    auto tokens = each.list() == nullptr ? std::nullopt : tokens_of(*each.list());
    if (!tokens) return fields.fail(name, wrong);
    ask.prompts.emplace_back(std::move(*tokens));
  }
}

void read_messages(Fields& fields, Ask& ask) {
  const json::Value* const messages = fields.find("messages");
  if (messages == nullptr || messages->list() == nullptr || messages->list()->empty())
    return fields.fail("messages", "must be a list of at least one message");
  ask.messages = *messages;
  if (const json::Value* const tools = fields.find("tools")) {
    if (tools->list() == nullptr || tools->list()->size() > tools_max)
      return fields.fail("tools", "must be a list of at most " + std::to_string(tools_max) + " tools");
    for (const json::Value& tool : *tools->list()) {
      const json::Value* const function = tool.find("function");
      if (function == nullptr || function->object() == nullptr)
        return fields.fail("tools", "must be functions: {\"type\":\"function\",\"function\":{…}}");
    }
    ask.tools = *tools;
  }
  fields.only("tool_choice", {"auto", "none"}, "can be \"auto\" or \"none\" here");
  if (const json::Value* const choice = fields.find("tool_choice"); choice != nullptr && *choice == "none")
    ask.tools = nullptr;
  fields.only("functions", {json::Array()}, "is not done here; send tools");
  fields.only("function_call", {"auto", "none"}, "is not done here; send tools");
  fields.only("audio", {}, "is not done here: this model writes text");
  fields.only("modalities", {json::Array{"text"}}, "can be [\"text\"] here: this model writes text");
  fields.only("echo", {false}, "is for completions");
  fields.only("chat_template", {}, "is not done here: the model's own is followed");
  fields.only("documents", {json::Array()}, "is not done here; send them in a message");
  fields.toggle("continue_final_message", ask.continues_last);
  ask.generation_prompt = !ask.continues_last;
  fields.toggle("add_generation_prompt", ask.generation_prompt);
  if (ask.continues_last && ask.generation_prompt)
    fields.fail("add_generation_prompt", "cannot be had together with continue_final_message");
  if (const json::Value* const arguments = fields.find("chat_template_kwargs")) {
    if (arguments->object() == nullptr) return fields.fail("chat_template_kwargs", "must be an object");
    ask.template_arguments = *arguments;
  }
}

void read_sampling(Fields& fields, Ask& ask) {
  Sampling& sampling = ask.sampling;
  sampling.temperature = 1;
  fields.number("temperature", sampling.temperature, 0, temperature_asked_max);
  // So near to 0 the likeliest token is all that is left.
  if (sampling.temperature < temperature_min) sampling.temperature = 0;
  fields.number("top_p", sampling.top_p, 0, 1);
  // Clients that mean "only the likeliest" write 0.
  if (sampling.top_p <= 0) sampling.top_p = std::numeric_limits<float>::min();
  fields.number("min_p", sampling.min_p, 0, 1);
  fields.whole("top_k", sampling.top_k, -1, top_k_max);
  sampling.top_k = std::max(sampling.top_k, 0);
  fields.number("presence_penalty", sampling.presence_penalty, -penalty_asked_max, penalty_asked_max);
  fields.number("frequency_penalty", sampling.frequency_penalty, -penalty_asked_max, penalty_asked_max);
  fields.number("repetition_penalty", sampling.repetition_penalty, 0.01, penalty_asked_max);
  if (const json::Value* const seed = fields.find("seed")) {
    const auto whole = whole_of(*seed);
    if (!whole && !seed->count()) return fields.fail("seed", "must be a whole number of 64 bits");
    ask.seed = seed->count().value_or(static_cast<std::uint64_t>(whole.value_or(0)));
  }
}

void read_biases(Fields& fields, Ask& ask) {
  const json::Value* const biases = fields.find("logit_bias");
  if (biases == nullptr) return;
  if (biases->object() == nullptr || biases->object()->size() > biases_max)
    return fields.fail("logit_bias",
                       "must be an object of at most " + std::to_string(biases_max) + " tokens");
  for (const auto& [key, value] : *biases->object()) {
    Token token = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), token);
    const auto bias = value.number();
    if (read.ec != std::errc() || read.ptr != key.data() + key.size() || token < 0 || !bias ||
        !(std::abs(*bias) <= bias_asked_max))
      return fields.fail("logit_bias", "must be pairs of a token's number and a bias from -100 to 100");
    ask.sampling.biases.emplace_back(token, static_cast<float>(*bias));
  }
}

void read_logprobs(Fields& fields, Ask& ask) {
  if (ask.kind == Kind::completion) {
    const json::Value* const given = fields.find("logprobs");
    if (given != nullptr && *given == false) return;
    fields.whole("logprobs", ask.sampling.logprobs, 0, logprobs_max);
    return;
  }
  bool wanted = false;
  fields.toggle("logprobs", wanted);
  if (wanted) ask.sampling.logprobs = 0;
  fields.whole("top_logprobs", ask.sampling.logprobs, 0, logprobs_max);
  if (!wanted && ask.sampling.logprobs > 0) fields.fail("top_logprobs", "needs logprobs to be true");
  if (!wanted) ask.sampling.logprobs = -1;
}

void read_stops(Fields& fields, Ask& ask) {
  if (const json::Value* const stop = fields.find("stop")) {
    const std::string wrong = "must be a text or a list of at most " + std::to_string(stop_texts_max) +
                              " texts, each of at most " + std::to_string(stop_text_bytes_max) + " bytes";
    const json::Array one{*stop};
    const json::Array& list = stop->list() != nullptr ? *stop->list() : one;
    if (list.size() > stop_texts_max) return fields.fail("stop", wrong);
    for (const json::Value& each : list) {
      if (each.text() == nullptr || each.text()->size() > stop_text_bytes_max)
        return fields.fail("stop", wrong);
      // What a form of a page has left empty.
      if (!each.text()->empty()) ask.stop_texts.push_back(*each.text());
    }
  }
  if (const json::Value* const ids = fields.find("stop_token_ids")) {
    auto tokens =
        ids->list() == nullptr || ids->list()->size() > stop_ids_max ? std::nullopt : tokens_of(*ids->list());
    if (!tokens)
      return fields.fail("stop_token_ids",
                         "must be a list of at most " + std::to_string(stop_ids_max) + " tokens");
    ask.stop_ids = std::move(*tokens);
  }
  fields.toggle("ignore_eos", ask.ignores_end);
}

void read_schema(Fields& fields, const json::Value* schema, Form& form) {
  if (schema == nullptr || (schema->object() == nullptr && !schema->boolean()))
    return fields.fail("response_format", "needs json_schema.schema, an object");
  form = {Form::Kind::schema, write_in_order(*schema)};
}

void read_form(Fields& fields, Ask& ask) {
  if (const json::Value* const format = fields.find("response_format")) {
    const json::Value* const type = format->find("type");
    if (type == nullptr || type->text() == nullptr)
      return fields.fail("response_format", "needs a type: text, json_object or json_schema");
    const json::Value* const named = format->find("json_schema");
    const json::Value* const own = format->find("schema");
    if (*type == "json_object" && own != nullptr && !own->is_null()) {
      read_schema(fields, own, ask.form);  // as other servers have it
    } else if (*type == "json_object") {
      ask.form.kind = Form::Kind::any_object;
    } else if (*type == "json_schema") {
      read_schema(fields, named == nullptr ? nullptr : named->find("schema"), ask.form);
    } else if (*type != "text") {
      return fields.fail("response_format", "has a type that is not known: text, json_object, json_schema");
    }
  }
  const json::Value* const pattern = fields.find("regex");
  if (pattern == nullptr) return;
  if (ask.form.kind != Form::Kind::free)
    return fields.fail("regex", "cannot be had together with response_format");
  if (pattern->text() == nullptr) return fields.fail("regex", "must be a text");
  ask.form = {Form::Kind::pattern, *pattern->text()};
}

// In place of a number of tokens: as many as there is room for. Others have taught clients so.
constexpr int no_bound = -1;

// What other servers have taught clients and would change the answer.
void refuse_what_others_do(Fields& fields) {
  for (const char* const name :
       {"guided_json", "guided_choice", "guided_grammar", "structured_outputs", "grammar", "json_schema"})
    fields.only(name, {"", json::Array()}, "is not done here; send response_format or regex");
  fields.only("guided_regex", {""}, "is not done here; send regex");
  fields.only("min_tokens", {0}, "is not done here; ignore_eos lets an answer go on to max_tokens");
  fields.only("use_beam_search", {false}, "is not done here");
  fields.only("bad_words", {json::Array()}, "is not done here; send logit_bias");
  fields.only("allowed_token_ids", {}, "is not done here; send logit_bias");
  fields.only("include_stop_str_in_output", {false}, "is not done here");
  fields.only("skip_special_tokens", {true}, "can only be true here");
  fields.only("prompt_logprobs", {}, "is not done here; send echo and logprobs to /v1/completions");
  fields.only("web_search_options", {}, "is not done here: this model looks nothing up");
  fields.only("stop_sequences", {json::Array()}, "is not done here; send stop");
  for (const char* const name : {"max_new_tokens", "n_predict"})
    fields.only(name, {no_bound}, "is not done here; send max_tokens");
  fields.only("repeat_penalty", {1}, "is not done here; send repetition_penalty");
  for (const char* const name : {"typical_p", "tfs_z", "length_penalty"})
    fields.only(name, {1}, "can only be 1 here, which changes nothing");
  for (const char* const name : {"top_a", "mirostat", "dynatemp_range", "xtc_probability", "dry_multiplier"})
    fields.only(name, {0}, "can only be 0 here, which changes nothing");
}

void read_size(Fields& fields, Ask& ask) {
  fields.whole("n", ask.answers, 1, answers_max);
  bool unbounded = false;
  for (const char* const name : {"max_tokens", "max_completion_tokens"}) {
    const json::Value* const given = fields.find(name);
    if (given != nullptr && *given == no_bound) {
      unbounded = true;
      continue;
    }
    // Who has the prompt said back may want nothing else.
    fields.whole(name, ask.tokens_max, ask.echoes ? 0 : 1, tokens_limit);
  }
  if (ask.kind == Kind::completion && !ask.tokens_max && !unbounded)
    ask.tokens_max = completion_tokens_default;
  const json::Value* const answers = fields.find("n");
  fields.only("best_of", {answers == nullptr ? json::Value(1) : *answers}, "can only be what n is");
  if (ask.prompts.size() * static_cast<std::size_t>(ask.answers) > static_cast<std::size_t>(answers_max))
    fields.fail("n", "times the prompts must be at most " + std::to_string(answers_max) + " answers");
}

void read_stream(Fields& fields, Ask& ask) {
  fields.toggle("stream", ask.streams);
  const json::Value* const options = fields.find("stream_options");
  if (options == nullptr) return;
  if (options->object() == nullptr) return fields.fail("stream_options", "must be an object");
  if (!ask.streams) return fields.fail("stream_options", "needs stream to be true");
  Fields inner(*options);
  inner.toggle("include_usage", ask.usage_in_stream);
  if (!inner.fine()) fields.fail("stream_options", "include_usage must be true or false");
}

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= resumed_id_bytes_max && std::ranges::all_of(text, [](char each) {
    return each >= ' ' && each <= '~' && each != '"' && each != '\'' && each != '\\';
  });
}

void read_resume(Fields& fields, Ask& ask) {
  constexpr const char* name = "tutti_resume";
  const json::Value* const given = fields.find(name);
  if (given == nullptr) return;
  if (given->object() == nullptr) return fields.fail(name, "must be an object");
  if (!ask.streams) return fields.fail(name, "needs stream to be true");
  if (ask.answers != 1 || (ask.kind == Kind::completion && ask.prompts.size() != 1))
    return fields.fail(name, "needs one prompt, and n to be 1");
  if (ask.echoes) return fields.fail(name, "cannot be had together with echo");
  Resume resume;
  Fields inner(*given);
  inner.text("id", resume.id, resumed_id_bytes_max);
  if (!inner.fine() || !is_id(resume.id))
    return fields.fail(name, "needs an id of at most " + std::to_string(resumed_id_bytes_max) +
                                 " printable bytes of ASCII, without quotes and backslashes");
  inner.whole("created", resume.created_seconds, 0, created_seconds_max);
  if (!inner.fine() || inner.find("created") == nullptr)
    return fields.fail(name, "needs created, in seconds since 1970");
  const json::Value* const list = inner.find("tokens");
  auto tokens = list == nullptr || list->list() == nullptr ? std::nullopt : tokens_of(*list->list());
  if (!tokens) return fields.fail(name, "needs tokens, a list of those that the answer has already");
  resume.tokens = std::move(*tokens);
  ask.resume = std::move(resume);
}

void read_embedding(Fields& fields, Ask& ask) {
  read_prompts(fields, "input", inputs_max, ask);
  fields.only("dimensions", {}, "is not done here: a vector is as long as the model makes it");
  fields.only("encoding_format", {"float", "base64"}, "can be \"float\" or \"base64\"");
  const json::Value* const format = fields.find("encoding_format");
  ask.in_base64 = format != nullptr && *format == "base64";
  fields.only("tutti_resume", {}, "is for answers that stream");
  ask.tokens_max = 1;
}

void append_in_order(const json::Value& value, std::string& out) {
  if (const json::Array* const list = value.list()) {
    out += '[';
    for (const json::Value& each : *list) {
      if (&each != list->data()) out += ',';
      append_in_order(each, out);
    }
    out += ']';
    return;
  }
  const json::Object* const object = value.object();
  if (object == nullptr) {
    out += json::write(value);
    return;
  }
  std::vector<const json::Member*> members;
  for (const json::Member& member : *object) members.push_back(&member);
  std::stable_sort(members.begin(), members.end(),
                   [](const json::Member* a, const json::Member* b) { return a->place < b->place; });
  out += '{';
  for (const json::Member* const member : members) {
    if (member != members.front()) out += ',';
    out += json::write(member->key) + ":";
    append_in_order(member->value, out);
  }
  out += '}';
}

}  // namespace

std::string write_in_order(const json::Value& value) {
  std::string out;
  append_in_order(value, out);
  return out;
}

Error too_many_logprobs() {
  return invalid("the answers have more than " + std::to_string(whole_logprobs_max) +
                 " logprobs, which is too much at once")
      .within("logprobs")
      .remedy("stream it, or ask for fewer tokens, answers or logprobs");
}

Result<Ask> read_ask(Kind kind, std::string_view body) {
  // Before anything is kept of it: a value takes many times the room of its text.
  const std::size_t values_max = kind == Kind::chat ? conversation_values_max : prompt_values_max;
  if (body.size() > values_max) {
    const auto scanned = json::scan(body, values_max);
    if (!scanned && scanned.error().message() == json::has_too_many_values)
      return invalid("the body cannot be read: " + scanned.error().text())
          .remedy("its JSON has at most " + std::to_string(values_max) + " values; prompts may be texts");
  }
  const auto root = json::parse(body);
  if (!root) return invalid("the body is no JSON: " + root.error().text());
  if (root->object() == nullptr) return invalid("the body must be a JSON object");
  Ask ask;
  ask.kind = kind;
  Fields fields(*root);
  fields.text("model", ask.model, name_bytes_max);
  fields.only("truncate_prompt_tokens", {}, "is not done here: what is too long is refused");
  // A template writes its own.
  fields.only("add_special_tokens", {kind != Kind::chat},
              "can only be true here, and false of a conversation, whose template writes them");
  if (kind == Kind::embedding) {
    read_embedding(fields, ask);
    if (!fields.fine()) return *fields.problem();
    return ask;
  }
  if (kind == Kind::completion) {
    read_prompts(fields, "prompt", prompts_max, ask);
    fields.toggle("echo", ask.echoes);
    fields.only("suffix", {""}, "is not done here");
  } else {
    read_messages(fields, ask);
  }
  refuse_what_others_do(fields);
  read_size(fields, ask);
  read_sampling(fields, ask);
  read_biases(fields, ask);
  read_logprobs(fields, ask);
  read_stops(fields, ask);
  read_form(fields, ask);
  read_stream(fields, ask);
  read_resume(fields, ask);
  if (!fields.fine()) return *fields.problem();
  return ask;
}

}  // namespace tutti::serve::api
