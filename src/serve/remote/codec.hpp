// A step and what was chosen as bytes, between two processes of one machine. What is read is checked: a
// process that is not what it should be is told so, and costs nothing but itself. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve::remote {

inline constexpr std::size_t frame_bytes_max = std::size_t{256} << 20;

enum class Word : std::uint32_t {
  ready,   // the model is loaded: its limits, what it is
  failed,  // what was asked for could not be done, and why
  step,    // chunks; it has no answer of its own
  choose,  // choices; the answer is what was chosen, or why the step or the choice failed
  chosen,
  row,  // the numbers of a row of logits
  logits,
  run,  // tensors for a program; the answer is what it makes of them
  ran,
};

// What stands in front of each message.
struct FrameHead {
  Word word = Word::failed;
  std::uint32_t bytes = 0;  // that follow
};

struct Ready {
  Limits limits;
  bool works_ahead = false;
  std::string about;
  std::string fingerprint = {};  // of the files that it was read from; "": nobody knows
};

// Chunks and choices point into memory; these are what they point to.
struct StepMemory {
  std::vector<Chunk> chunks;
  std::deque<std::vector<Token>> tokens;
  std::deque<std::vector<BlockId>> blocks;
};
struct ChoiceMemory {
  std::vector<Choice> choices;
  std::deque<std::vector<std::pair<Token, float>>> biases;
  std::deque<std::vector<Choice::Seen>> seen;
  std::deque<std::vector<std::uint64_t>> masks;
};

std::string encode(const Ready& ready);
std::string encode(std::span<const Chunk> chunks);
std::string encode(std::span<const Choice> choices);
std::string encode(std::span<const Chosen> chosen);
std::string encode(std::span<const float> numbers);
std::string encode(std::int32_t row);
std::string encode(const Error& error);

Result<Ready> decode_ready(std::string_view bytes);
Result<StepMemory> decode_step(std::string_view bytes);
Result<ChoiceMemory> decode_choices(std::string_view bytes);
Result<std::vector<Chosen>> decode_chosen(std::string_view bytes);
// As many as were asked for, all of the vocabulary.
Result<std::vector<Chosen>> read_chosen(std::string_view bytes, std::size_t count, const Limits& limits);
Result<std::vector<float>> decode_logits(std::string_view bytes);
Result<std::int32_t> decode_row(std::string_view bytes);
// The error that was encoded, or that it cannot be read.
Error decode_error(std::string_view bytes);

}  // namespace tutti::serve::remote
