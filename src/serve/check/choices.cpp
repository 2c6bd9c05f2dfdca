// Tokens that a GPU draws, beside those of the reference.
#include <optional>
#include <vector>

#include "serve/batch/choose.hpp"
#include "serve/check/families.hpp"
#include "serve/check/line.hpp"
#include "serve/check/parts.hpp"

namespace tutti::serve {
namespace {

constexpr int turns = 40;

// Every way to choose, some of them left to the host.
std::vector<Choice> made_choices(std::int32_t rows, std::uint64_t turn,
                                 std::span<const std::pair<Token, float>> biases) {
  std::vector<Choice> choices;
  for (std::int32_t row = 0; row < rows; ++row) {
    const std::uint64_t number = turn * 1000 + static_cast<std::uint64_t>(row) * 10;
    const auto unit = [&](std::uint64_t at) { return (cpu::made_number(number + at) + 1) / 2; };
    Choice choice;
    choice.row = row;
    choice.uniform = unit(0);
    if (row % 7 != 0) choice.temperature = static_cast<float>(0.1 + 3 * unit(1));
    if (row % 3 == 1) choice.top_k = static_cast<std::int32_t>(1 + 60 * unit(2));
    if (row % 4 >= 2) choice.top_p = static_cast<float>(unit(3));
    if (row % 5 == 4) choice.min_p = static_cast<float>(0.5 * unit(4));
    if (row % 11 == 10) choice.biases = biases;
    if (row % 13 == 12) choice.logprobs = 3;
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace

Result<> check_choices(const Print& print) {
  model::Shape shape = cpu::small_llama();
  shape.vocabulary = 5003;
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  auto model =
      cuda::make_model(shape, {.blocks_max = 8, .step_tokens_max = 128, .step_rows_max = 128, .tunes = false},
                       cpu::reader_of(tensors));
  if (!model) return std::move(model).error();
  std::vector<BlockId> blocks{0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<std::pair<Token, float>> biases{{3, 5.0F}, {17, -2.0F}};
  Chooser chooser;
  int different = 0;
  int all = 0;
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    std::vector<Token> tokens;
    for (std::uint64_t at = 0; at < 100; ++at)
      tokens.push_back(static_cast<Token>((cpu::made_number(turn * 777 + at) + 1) / 2 * 5003));
    const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 100};
    if (auto done = (*model)->step({&chunk, 1}); !done) return done;
    const auto choices = made_choices(100, turn, biases);
    const auto chosen = (*model)->choose(choices);
    if (!chosen) return chosen.error();
    for (std::size_t at = 0; at < choices.size(); ++at) {
      const auto row = (*model)->logits(choices[at].row);
      if (!row) return row.error();
      const Chosen expected = chooser.choose(*row, choices[at]);
      if (expected.token != (*chosen)[at].token) ++different;
      ++all;
    }
  }
  print(line("choices                  %d of %d tokens are others than the reference's", different, all));
  if (different > 0) return failed("the GPU draws other tokens than the reference");
  return {};
}

Result<> check_gpu(const Print& print) {
  if (cuda::devices() == 0)
    return failed("there is no GPU here that could be checked")
        .remedy("run it where `nvidia-smi` shows one, with a worker that was built with CUDA");
  std::optional<Error> first;
  for (const auto& part : {check_logits, check_known, check_choices, check_answers}) {
    auto done = part(print);
    if (done) continue;
    print("FAILED: " + done.error().text());
    if (!first) first = std::move(done).error();
  }
  if (first) return *std::move(first);
  return {};
}

}  // namespace tutti::serve
