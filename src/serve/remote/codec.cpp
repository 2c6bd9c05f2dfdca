#include "serve/remote/codec.hpp"

#include "serve/remote/packing.hpp"

namespace tutti::serve::remote {
namespace {

// A pair is not trivially copyable for every library.
struct Bias {
  Token token = 0;
  float value = 0;
};

// What of a choice has a fixed size.
struct PlainChoice {
  double uniform = 0;
  std::int32_t row = 0;
  std::int32_t top_k = 0;
  std::int32_t logprobs = -1;
  Token given = no_token;
  float temperature = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::uint32_t pooling = 0;
};

constexpr std::size_t chunk_bytes_min = 36;
constexpr std::size_t chosen_bytes_min = 32;

}  // namespace

// Chunks, choices and what was chosen are taken apart by all their fields: one more does not compile until it
// is sent, too.

std::string encode(const Ready& ready) {
  Writer writer;
  writer.put(ready.limits);
  writer.put(static_cast<std::uint32_t>(ready.works_ahead ? 1 : 0));
  writer.put_text(ready.about);
  writer.put_text(ready.fingerprint);
  return writer.take();
}

std::string encode(std::span<const Chunk> chunks) {
  Writer writer;
  writer.put(static_cast<std::uint64_t>(chunks.size()));
  for (const auto& [tokens, first, blocks, rows, adapter, follows] : chunks) {
    writer.put(first);
    writer.put(rows);
    writer.put(adapter);
    writer.put(follows);
    writer.put_list(tokens);
    writer.put_list(blocks);
  }
  return writer.take();
}

std::string encode(std::span<const Choice> choices) {
  Writer writer;
  writer.put(static_cast<std::uint64_t>(choices.size()));
  for (const auto& [row, temperature, top_k, top_p, min_p, uniform, biases, repetition_penalty,
                    presence_penalty, frequency_penalty, seen, allowed, given, logprobs, pooling] : choices) {
    writer.put(PlainChoice{.uniform = uniform,
                           .row = row,
                           .top_k = top_k,
                           .logprobs = logprobs,
                           .given = given,
                           .temperature = temperature,
                           .top_p = top_p,
                           .min_p = min_p,
                           .repetition_penalty = repetition_penalty,
                           .presence_penalty = presence_penalty,
                           .frequency_penalty = frequency_penalty,
                           .pooling = static_cast<std::uint32_t>(pooling)});
    writer.put(static_cast<std::uint64_t>(biases.size()));
    for (const auto& [token, value] : biases) writer.put(Bias{token, value});
    writer.put_list(seen);
    writer.put_list(allowed);
  }
  return writer.take();
}

std::string encode(std::span<const Chosen> chosen) {
  Writer writer;
  writer.put(static_cast<std::uint64_t>(chosen.size()));
  for (const auto& [token, logprob, likeliest, hidden, hidden_sum] : chosen) {
    writer.put(token);
    writer.put(logprob);
    writer.put_list(std::span<const Logprob>(likeliest));
    writer.put_list(std::span<const float>(hidden));
    writer.put_list(std::span<const double>(hidden_sum));
  }
  return writer.take();
}

std::string encode(std::span<const float> numbers) {
  Writer writer;
  writer.put_list(numbers);
  return writer.take();
}

std::string encode(std::int32_t row) {
  Writer writer;
  writer.put(row);
  return writer.take();
}

std::string encode(const Error& error) {
  Writer writer;
  writer.put(static_cast<std::uint32_t>(error.code() == ErrorCode::invalid ? 1 : 0));
  writer.put_text(error.text());
  writer.put_text(error.remedy());
  return writer.take();
}

Result<Ready> decode_ready(std::string_view bytes) {
  Reader reader(bytes);
  Ready ready;
  ready.limits = reader.get<Limits>();
  ready.works_ahead = reader.get<std::uint32_t>() == 1;
  ready.about = reader.get_text();
  ready.fingerprint = reader.get_text();
  if (auto end = reader.end(); !end) return std::move(end).error();
  const Limits& limits = ready.limits;
  if (limits.vocabulary < 1 || limits.context < 1 || limits.block_tokens < 1 || limits.blocks < 1 ||
      limits.step_tokens_max < 1 || limits.step_rows_max < 1 || limits.adapters < 0)
    return failed("the worker's model has no size");
  return ready;
}

Result<StepMemory> decode_step(std::string_view bytes) {
  Reader reader(bytes);
  StepMemory step;
  step.chunks.resize(reader.get_count(chunk_bytes_min));
  for (Chunk& chunk : step.chunks) {
    chunk.first = reader.get<std::int64_t>();
    chunk.rows = reader.get<std::int32_t>();
    chunk.adapter = reader.get<std::int32_t>();
    chunk.follows = reader.get<std::int32_t>();
    chunk.tokens = step.tokens.emplace_back(reader.get_list<Token>());
    chunk.blocks = step.blocks.emplace_back(reader.get_list<BlockId>());
  }
  if (auto end = reader.end(); !end) return std::move(end).error();
  return step;
}

Result<ChoiceMemory> decode_choices(std::string_view bytes) {
  Reader reader(bytes);
  ChoiceMemory memory;
  memory.choices.resize(reader.get_count(sizeof(PlainChoice)));
  for (Choice& choice : memory.choices) {
    const auto plain = reader.get<PlainChoice>();
    choice.uniform = plain.uniform;
    choice.row = plain.row;
    choice.top_k = plain.top_k;
    choice.logprobs = plain.logprobs;
    choice.given = plain.given;
    choice.temperature = plain.temperature;
    choice.top_p = plain.top_p;
    choice.min_p = plain.min_p;
    choice.repetition_penalty = plain.repetition_penalty;
    choice.presence_penalty = plain.presence_penalty;
    choice.frequency_penalty = plain.frequency_penalty;
    if (plain.pooling > static_cast<std::uint32_t>(Pooling::mean))
      return failed("a choice asks for a pooling that is not known");
    choice.pooling = static_cast<Pooling>(plain.pooling);
    auto& biases = memory.biases.emplace_back();
    for (const Bias& bias : reader.get_list<Bias>()) biases.emplace_back(bias.token, bias.value);
    choice.biases = biases;
    choice.seen = memory.seen.emplace_back(reader.get_list<Choice::Seen>());
    choice.allowed = memory.masks.emplace_back(reader.get_list<std::uint64_t>());
  }
  if (auto end = reader.end(); !end) return std::move(end).error();
  return memory;
}

Result<std::vector<Chosen>> decode_chosen(std::string_view bytes) {
  Reader reader(bytes);
  std::vector<Chosen> chosen(reader.get_count(chosen_bytes_min));
  for (Chosen& each : chosen) {
    each.token = reader.get<Token>();
    each.logprob = reader.get<float>();
    each.likeliest = reader.get_list<Logprob>();
    each.hidden = reader.get_list<float>();
    each.hidden_sum = reader.get_list<double>();
  }
  if (auto end = reader.end(); !end) return std::move(end).error();
  return chosen;
}

Result<std::vector<Chosen>> read_chosen(std::string_view bytes, std::size_t count, const Limits& limits) {
  auto chosen = decode_chosen(bytes);
  if (!chosen) return chosen;
  if (chosen->size() != count) return failed("the worker has chosen too few tokens or too many");
  for (const Chosen& each : *chosen) {
    if (each.token < no_number || each.token >= limits.vocabulary)
      return failed("the worker has chosen a token that is not in the vocabulary");
  }
  return chosen;
}

Result<std::vector<float>> decode_logits(std::string_view bytes) {
  Reader reader(bytes);
  auto numbers = reader.get_list<float>();
  if (auto end = reader.end(); !end) return std::move(end).error();
  return numbers;
}

Result<std::int32_t> decode_row(std::string_view bytes) {
  Reader reader(bytes);
  const auto row = reader.get<std::int32_t>();
  if (auto end = reader.end(); !end) return std::move(end).error();
  return row;
}

Error decode_error(std::string_view bytes) {
  Reader reader(bytes);
  const bool is_wrong = reader.get<std::uint32_t>() == 1;
  std::string message = reader.get_text();
  const std::string remedy = reader.get_text();
  if (auto end = reader.end(); !end) return std::move(end).error();
  Error error = is_wrong ? invalid(std::move(message)) : failed(std::move(message));
  return remedy.empty() ? error : std::move(error).remedy(remedy);
}

}  // namespace tutti::serve::remote
