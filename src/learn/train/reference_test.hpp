// The same models as a plain libtorch program would have them: one process, gradients by autograd, whole
// logits. What the trainer computes is compared with this.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "learn/model/shape.hpp"
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
    const bool gpt2 = shape_.family == model::Family::gpt2;
    const std::int64_t length = tokens.size(1);
    torch::Tensor x = torch::embedding(w(gpt2 ? "wte.weight" : "model.embed_tokens.weight"), tokens);
    if (gpt2) x = x + w("wpe.weight").slice(0, 0, length);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      x = gpt2 ? gpt2_block(x, "h." + std::to_string(layer) + ".")
               : llama_block(x, "model.layers." + std::to_string(layer) + ".");
    }
    x = gpt2 ? layer_norm(x, "ln_f") : rms_norm(x, "model.norm");
    const std::string embedding = gpt2 ? "wte.weight" : "model.embed_tokens.weight";
    return torch::matmul(x, w(shape_.tied ? embedding : "lm_head.weight").t());
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

  torch::Tensor layer_norm(const torch::Tensor& x, const std::string& at) {
    return torch::layer_norm(x, {shape_.hidden}, w(at + ".weight"), w(at + ".bias"), shape_.norm_epsilon);
  }
  torch::Tensor rms_norm(const torch::Tensor& x, const std::string& at) {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + shape_.norm_epsilon) * w(at + ".weight");
  }

  torch::Tensor attend(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    const std::int64_t batch = q.size(0);
    const std::int64_t length = q.size(1);
    const std::int64_t d = shape_.head_size();
    const auto heads = [&](const torch::Tensor& t) { return t.view({batch, length, -1, d}).transpose(1, 2); };
    q = heads(q);
    k = heads(k);
    v = heads(v);
    if (shape_.family == model::Family::llama) {
      q = turned(q);
      k = turned(k);
    }
    const std::int64_t sharing = shape_.heads / shape_.kv_heads;
    k = k.repeat_interleave(sharing, 1);
    v = v.repeat_interleave(sharing, 1);
    const auto mask = torch::ones({length, length}, torch::kBool).tril();
    const auto scores = (torch::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(d)))
                            .masked_fill(mask.logical_not(), -INFINITY);
    return torch::matmul(torch::softmax(scores, -1), v).transpose(1, 2).reshape({batch, length, -1});
  }

  // The halves of each head against each other.
  torch::Tensor turned(const torch::Tensor& x) {
    const std::int64_t d = x.size(-1);
    const auto frequencies =
        torch::pow(shape_.rope.theta, -torch::arange(0, d, 2, torch::kDouble) / static_cast<double>(d));
    const auto angles = torch::outer(torch::arange(x.size(2), torch::kDouble), frequencies);
    const auto both = torch::cat({angles, angles}, -1);
    const auto halves = x.chunk(2, -1);
    const auto other = torch::cat({-halves[1], halves[0]}, -1);
    return x * both.cos().to(x.dtype()) + other * both.sin().to(x.dtype());
  }

  torch::Tensor gpt2_block(const torch::Tensor& x, const std::string& at) {
    const auto linear = [&](const torch::Tensor& in, const std::string& name) {
      return torch::linear(in, w(at + name + ".weight"), w(at + name + ".bias"));
    };
    const auto h = layer_norm(x, at + "ln_1");
    const auto attended = attend(linear(h, "attn.q"), linear(h, "attn.k"), linear(h, "attn.v"));
    const auto middle = x + linear(attended, "attn.c_proj");
    const auto hidden = torch::gelu(linear(layer_norm(middle, at + "ln_2"), "mlp.c_fc"), "tanh");
    return middle + linear(hidden, "mlp.c_proj");
  }

  torch::Tensor llama_block(const torch::Tensor& x, const std::string& at) {
    const auto linear = [&](const torch::Tensor& in, const std::string& name) {
      return torch::linear(in, w(at + name + ".weight"));
    };
    const auto h = rms_norm(x, at + "input_layernorm");
    const auto attended =
        attend(linear(h, "self_attn.q_proj"), linear(h, "self_attn.k_proj"), linear(h, "self_attn.v_proj"));
    const auto middle = x + linear(attended, "self_attn.o_proj");
    const auto normed = rms_norm(middle, at + "post_attention_layernorm");
    return middle + linear(torch::silu(linear(normed, "mlp.gate_proj")) * linear(normed, "mlp.up_proj"),
                           "mlp.down_proj");
  }

  model::Shape shape_;
  std::map<std::string, torch::Tensor> weights_;
  std::map<std::string, std::pair<torch::Tensor, torch::Tensor>> moments_;
  std::map<std::string, bool> decays_;
};

}  // namespace tutti::train
