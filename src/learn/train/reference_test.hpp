// The same models as a plain libtorch program would have them: one process, gradients by autograd, whole
// logits. What the trainer computes is compared with this.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "learn/model/names.hpp"
#include "learn/train/initial_values.hpp"

namespace tutti::train {

class Reference {
 public:
  Reference(const model::Shape& shape, std::uint64_t seed, at::ScalarType type = at::kFloat) : shape_(shape) {
    const auto source = initial_values(seed);
    for (const model::Unit& unit : model::units(shape)) {
      for (const model::Tensor& tensor : unit.tensors) {
        torch::Tensor values = torch::empty(tensor.shape, torch::kFloat);
        source(Kind::weight, tensor, {std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape},
               {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
        weights_[tensor.name] = values.to(type).requires_grad_(true);
        decays_[tensor.name] = tensor.decays;
      }
    }
  }

  // batch × length tokens; the mean loss.
  torch::Tensor loss(const torch::Tensor& tokens, const torch::Tensor& targets) {
    const torch::Tensor logits = forward(tokens);
    return torch::nn::functional::cross_entropy(logits.reshape({-1, shape_.vocabulary}),
                                                targets.reshape({-1}));
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    const model::Names names = model::names_of(shape_);
    torch::Tensor x = torch::embedding(w(names.embedding + ".weight"), tokens);
    if (shape_.learned_positions) x = x + w(names.positions + ".weight").slice(0, 0, tokens.size(1));
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = block(x, layer);
    return torch::matmul(norm(x, names.norm),
                         w((shape_.tied ? names.embedding : names.head) + ".weight").t());
  }

  // One step of AdamW as PyTorch has it, with clipping; the norm before it.
  double step(const UpdateOptions& o) {
    double squares = 0;
    for (auto& [name, weight] : weights_)
      squares += weight.grad().to(torch::kDouble).pow(2).sum().item<double>();
    const double norm = std::sqrt(squares);
    const double scale = o.clip > 0 && norm > o.clip ? o.clip / norm : 1.0;
    torch::NoGradGuard guard;
    for (auto& [name, weight] : weights_) {
      auto& [first, second] = moments_[name];
      if (!first.defined()) first = torch::zeros_like(weight), second = torch::zeros_like(weight);
      const torch::Tensor gradient = weight.grad() * scale;
      first.mul_(o.beta1).add_(gradient, 1 - o.beta1);
      second.mul_(o.beta2).addcmul_(gradient, gradient, 1 - o.beta2);
      const double n = static_cast<double>(o.step);
      weight.mul_(1 - o.learning_rate * (decays_[name] ? o.decay : 0.0));
      const torch::Tensor spread = (second / (1 - std::pow(o.beta2, n))).sqrt() + o.epsilon;
      weight.addcdiv_(first / (1 - std::pow(o.beta1, n)), spread, -o.learning_rate);
      weight.mutable_grad().reset();
    }
    return norm;
  }

  std::map<std::string, torch::Tensor>& weights() { return weights_; }

 private:
  const torch::Tensor& w(const std::string& name) { return weights_.at(name); }

  torch::Tensor norm(const torch::Tensor& x, const std::string& part) {
    if (shape_.norm == model::Norm::rms) return rms_norm(x, part);
    return torch::layer_norm(x, {shape_.hidden}, w(part + ".weight"), w(part + ".bias"), shape_.norm_epsilon);
  }
  torch::Tensor rms_norm(const torch::Tensor& x, const std::string& part) {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + shape_.norm_epsilon) * w(part + ".weight");
  }
  torch::Tensor linear(const torch::Tensor& x, const std::string& part, bool with_bias) {
    return torch::linear(x, w(part + ".weight"), with_bias ? w(part + ".bias") : torch::Tensor());
  }
  torch::Tensor activated(const torch::Tensor& x) const {
    if (shape_.activation == model::Activation::silu) return torch::silu(x);
    return torch::gelu(x, shape_.activation == model::Activation::gelu ? "none" : "tanh");
  }

  torch::Tensor attention(const torch::Tensor& x, const model::LayerNames& names) {
    const std::int64_t batch = x.size(0);
    const std::int64_t length = x.size(1);
    const std::int64_t d = shape_.head_size;
    const auto heads = [&](const std::string& part) {
      return linear(x, part, shape_.qkv_bias).view({batch, length, -1, d}).transpose(1, 2);
    };
    torch::Tensor q = heads(names.queries);
    torch::Tensor k = heads(names.keys);
    torch::Tensor v = heads(names.values);
    if (shape_.qk_norm) {
      q = rms_norm(q, names.query_norm);
      k = rms_norm(k, names.key_norm);
    }
    if (!shape_.learned_positions) {
      q = turned(q);
      k = turned(k);
    }
    const std::int64_t sharing = shape_.heads / shape_.kv_heads;
    k = k.repeat_interleave(sharing, 1);
    v = v.repeat_interleave(sharing, 1);
    torch::Tensor seen = torch::ones({length, length}, torch::kBool).tril();
    if (shape_.window > 0)
      seen = seen.logical_and(torch::ones({length, length}, torch::kBool).triu(1 - shape_.window));
    const auto scores = (torch::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(d)))
                            .masked_fill(seen.logical_not(), -INFINITY);
    const auto out =
        torch::matmul(torch::softmax(scores, -1), v).transpose(1, 2).reshape({batch, length, -1});
    return linear(out, names.output, shape_.output_bias);
  }

  // The halves of each head against each other.
  torch::Tensor turned(const torch::Tensor& x) {
    const auto frequencies = torch::tensor(model::frequencies(shape_.rope, x.size(-1)), torch::kDouble);
    const auto angles = torch::outer(torch::arange(x.size(2), torch::kDouble), frequencies);
    const auto both = torch::cat({angles, angles}, -1);
    const auto halves = x.chunk(2, -1);
    const auto other = torch::cat({-halves[1], halves[0]}, -1);
    return (x * both.cos().to(x.dtype()) + other * both.sin().to(x.dtype())) * shape_.rope.attention_factor;
  }

  torch::Tensor feed_forward(const torch::Tensor& x, const model::FeedForwardNames& names) {
    const auto up = linear(x, names.up, shape_.mlp_bias);
    const auto hidden = shape_.gated ? activated(linear(x, names.gate, shape_.mlp_bias)) * up : activated(up);
    return linear(hidden, names.down, shape_.mlp_bias);
  }

  // Every expert computes every row, and what was not chosen counts nothing.
  torch::Tensor mixture(const torch::Tensor& x, std::int64_t layer) {
    const auto names = model::names_of_layer(shape_, layer);
    auto [weights, chosen] =
        torch::softmax(linear(x, names.router, false), -1).topk(shape_.experts.chosen, -1);
    if (shape_.experts.normalized) weights = weights / weights.sum(-1, true);
    torch::Tensor sum = torch::zeros_like(x);
    for (std::int64_t i = 0; i < shape_.experts.count; ++i) {
      const auto share = (weights * (chosen == i)).sum(-1, true);
      sum = sum + share * feed_forward(x, model::names_of_expert(shape_, layer, i));
    }
    return sum;
  }

  torch::Tensor block(const torch::Tensor& x, std::int64_t layer) {
    const auto names = model::names_of_layer(shape_, layer);
    const auto middle = x + attention(norm(x, names.attention_norm), names);
    const auto normed = norm(middle, names.feed_forward_norm);
    return middle +
           (shape_.has_experts(layer) ? mixture(normed, layer) : feed_forward(normed, names.feed_forward));
  }

  model::Shape shape_;
  std::map<std::string, torch::Tensor> weights_;
  std::map<std::string, std::pair<torch::Tensor, torch::Tensor>> moments_;
  std::map<std::string, bool> decays_;
};

}  // namespace tutti::train
