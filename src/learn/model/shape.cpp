#include "learn/model/shape.hpp"

#include <algorithm>
#include <cmath>

#include "base/json/write.hpp"

namespace tutti::model {
namespace {

constexpr std::int64_t size_max = std::int64_t{1} << 24;
constexpr std::int64_t layers_max = 4096;
constexpr std::int64_t experts_max = 4096;
// So many can be listed, and their elements counted, without harm.
constexpr std::int64_t tensors_max = std::int64_t{1} << 20;
constexpr double parameters_max = 1e15;
constexpr double norm_epsilon_min = 1e-30;
constexpr double norm_epsilon_max = 1;

bool is_size(std::int64_t size) { return size >= 1 && size <= size_max; }

std::string problem_of_experts(const Shape& shape) {
  const Experts& experts = shape.experts;
  if (experts.count < 0 || experts.count > experts_max) return "there are at most 4,096 experts";
  if (experts.count == 0) return "";
  if (experts.chosen < 1 || experts.chosen > experts.count)
    return "the experts of a token lie between 1 and all of them";
  if (!is_size(experts.intermediate) || !is_size(experts.every))
    return "each size of the experts must lie between 1 and 16,777,216";
  for (const std::int64_t layer : experts.dense_layers) {
    if (layer < 0 || layer >= shape.layers) return "a layer without experts is none of the model's";
  }
  if (static_cast<std::int64_t>(experts.dense_layers.size()) > shape.layers)
    return "more layers are without experts than there are";
  // Up to six tensors an expert, with biases.
  if (shape.layers * experts.count * 6 > tensors_max) return "it has too many experts in too many layers";
  return "";
}

// Of all, within a few hundredths: what is multiplied here must not overflow.
double parameters_about(const Shape& shape) {
  const auto real = [](std::int64_t size) { return static_cast<double>(size); };
  const double attention = 2 * real(shape.heads + shape.kv_heads) * real(shape.head_size);
  const double dense = 3 * real(shape.intermediate);
  const double experts = 3 * real(shape.experts.count) * real(shape.experts.intermediate);
  const double layer = real(shape.hidden) * (attention + std::max(dense, experts));
  return real(shape.layers) * layer + real(shape.hidden) * real(2 * shape.vocabulary + shape.context);
}

std::string problem_of(const Shape& shape) {
  for (const std::int64_t size : {shape.vocabulary, shape.layers, shape.hidden, shape.heads, shape.kv_heads,
                                  shape.head_size, shape.intermediate, shape.context}) {
    if (!is_size(size)) return "each size must lie between 1 and 16,777,216";
  }
  if (shape.layers > layers_max) return "there are at most 4,096 layers";
  if (shape.heads * shape.head_size > size_max) return "all heads together have at most 16,777,216 numbers";
  if (shape.heads % shape.kv_heads != 0) return "the heads must be a multiple of the key-value heads";
  if (shape.model_type == "gpt2") {
    if (shape.heads * shape.head_size != shape.hidden)
      return "the hidden size must be a multiple of the heads";
    if (shape.kv_heads != shape.heads) return "gpt2 has as many key-value heads as heads";
  }
  if (!shape.learned_positions && shape.head_size % 2 != 0) return "a head must have an even size";
  if (shape.window < 0 || shape.window > size_max) return "a window has at most 16,777,216 positions";
  // Below it is nothing, and above it more than what it is added to.
  if (!(shape.norm_epsilon >= norm_epsilon_min && shape.norm_epsilon <= norm_epsilon_max))
    return "the norms' epsilon (rms_norm_eps, layer_norm_epsilon) must lie between 1e-30 and 1";
  if (!(shape.rope.theta > 0) || !std::isfinite(shape.rope.theta))
    return "rope theta must be above 0 and finite";
  if (std::string problem = problem_of_experts(shape); !problem.empty()) return problem;
  if (parameters_about(shape) > parameters_max) return "it has more than 10^15 parameters";
  return "";
}

const char* text_of(Norm norm) { return norm == Norm::layer ? "layer" : "rms"; }

const char* text_of(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
  }
  return "";
}

}  // namespace

bool Shape::has_experts(std::int64_t layer) const {
  return experts.count > 0 && (layer + 1) % experts.every == 0 &&
         std::ranges::find(experts.dense_layers, layer) == experts.dense_layers.end();
}

std::string difference(const Shape& then, const Shape& now) {
  std::string text;
  const auto compare = [&](const char* name, const auto& before, const auto& here) {
    if (before == here || !text.empty()) return;
    text = std::string(name) + " is " + json::write(json::Value(before)) + " there and " +
           json::write(json::Value(here)) + " here";
  };
  compare("the family", then.model_type, now.model_type);
  compare("layers", then.layers, now.layers);
  compare("hidden", then.hidden, now.hidden);
  compare("heads", then.heads, now.heads);
  compare("kv_heads", then.kv_heads, now.kv_heads);
  compare("head_size", then.head_size, now.head_size);
  compare("intermediate", then.intermediate, now.intermediate);
  compare("the vocabulary", then.vocabulary, now.vocabulary);
  compare("the head's tie to the embedding", then.tied, now.tied);
  compare("the kind of norms", std::string(text_of(then.norm)), std::string(text_of(now.norm)));
  compare("the norms' epsilon", then.norm_epsilon, now.norm_epsilon);
  compare("the activation", std::string(text_of(then.activation)), std::string(text_of(now.activation)));
  compare("the gate of the MLP", then.gated, now.gated);
  compare("the bias of queries, keys and values", then.qkv_bias, now.qkv_bias);
  compare("the bias of the attention's output", then.output_bias, now.output_bias);
  compare("the bias of the MLP", then.mlp_bias, now.mlp_bias);
  compare("the norm of queries and keys", then.qk_norm, now.qk_norm);
  compare("the window", then.window, now.window);
  if (text.empty() && then.experts != now.experts) text = "the experts are others";
  compare("learning of positions", then.learned_positions, now.learned_positions);
  // Learned positions are tensors; rotary ones are computed for as many as there are.
  if (now.learned_positions) compare("context", then.context, now.context);
  if (text.empty() && !now.learned_positions && then.rope != now.rope)
    text = "the rotary positions are others";
  return text;
}

Result<> check(const Shape& shape) {
  if (const std::string problem = problem_of(shape); !problem.empty())
    return invalid(problem).within("the model's shape");
  return {};
}

}  // namespace tutti::model
