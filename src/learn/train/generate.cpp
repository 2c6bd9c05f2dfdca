#include "learn/train/generate.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/prng.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/recipe/recipe.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/saver.hpp"
#include "learn/train/transformer.hpp"

namespace tutti::train {
namespace {

std::uint32_t draw(const at::Tensor& logits, const GenerateOptions& options, Prng& random) {
  if (options.temperature <= 0) return static_cast<std::uint32_t>(logits.argmax().item<std::int64_t>());
  const std::int64_t count = options.top > 0 ? std::min(options.top, logits.size(0)) : logits.size(0);
  const auto [values, tokens] = logits.topk(count);
  const at::Tensor probabilities = at::softmax(values.to(at::kDouble) / options.temperature, 0);
  double left = random.unit();
  for (std::int64_t i = 0; i < count; ++i) {
    left -= probabilities[i].item<double>();
    if (left < 0) return static_cast<std::uint32_t>(tokens[i].item<std::int64_t>());
  }
  return static_cast<std::uint32_t>(tokens[0].item<std::int64_t>());
}

void generate_text(const GenerateOptions& options, const std::function<void(std::string_view)>& say) {
  auto latest = require(checkpoint::open_latest(options.run + "/checkpoints"));
  if (!latest) {
    throw Failure(
        failed("there is no checkpoint yet").within(options.run).remedy("`tutti train` makes them"));
  }
  const recipe::Recipe recipe = require(recipe::parse_recipe(latest->state().recipe));
  const model::Shape shape = require(model::parse_config(latest->state().model_config));
  const auto data = require(dataset::Dataset::open(recipe.data));
  const auto tokenizer = require(tokenizer::Tokenizer::parse(data.tokenizer_json()));
  const std::int64_t length = recipe.context;

  Groups alone;
  Transformer model({.setup = Setup::make(shape, alone, 1, length, at::kCPU)}, alone);
  model.parameters().fill(
      [&](Kind kind, const model::Tensor& tensor, const checkpoint::Box& box, std::span<float> out) {
        require(latest->read(stored_name(kind, tensor.name), box, std::as_writable_bytes(out)));
      },
      false);
  model.parameters().publish();

  std::vector<std::uint32_t> tokens = tokenizer.encode(options.prompt);
  if (tokens.empty()) tokens.push_back(data.end_of_text());
  say(options.prompt);
  Prng random(options.seed);
  for (std::int64_t made = 0; made < options.tokens; ++made) {
    // What fits into the model's context; what follows it is not looked at.
    const auto seen = std::min(tokens.size(), static_cast<std::size_t>(length));
    at::Tensor window = at::zeros({length}, at::kLong);
    std::copy(tokens.end() - static_cast<std::ptrdiff_t>(seen), tokens.end(),
              window.data_ptr<std::int64_t>());
    const at::Tensor logits = model.next_logits(window, static_cast<std::int64_t>(seen) - 1);
    const std::uint32_t next = draw(logits[0], options, random);
    if (next == data.end_of_text()) break;
    tokens.push_back(next);
    say(tokenizer.decode({&tokens.back(), 1}, {.continues = true}));
  }
}

}  // namespace

Result<> generate(const GenerateOptions& options, const std::function<void(std::string_view)>& say) {
  return caught([&] { generate_text(options, say); });
}

}  // namespace tutti::train
