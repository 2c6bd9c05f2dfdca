#include "learn/train/check_functions.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "learn/train/math.hpp"

namespace tutti::train {
namespace {

at::Tensor exact(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU, at::kDouble); }

// To be differentiated by libtorch.
at::Tensor leaf(const at::Tensor& tensor) { return exact(tensor).clone().requires_grad_(); }

// Not a number if anything in it is not.
double error_of(const at::Tensor& got, const at::Tensor& expected) {
  const double scale = expected.detach().abs().max().item<double>();
  return (exact(got) - expected.detach()).abs().max().item<double>() / std::max(scale, 1e-30);
}

// ---- what plain libtorch computes

at::Tensor reference_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          double epsilon) {
  if (bias.defined()) return at::layer_norm(x, {x.size(1)}, weight, bias, epsilon);
  return x * at::rsqrt(x.pow(2).mean(1, true) + epsilon) * weight;
}

// The halves of each head against each other. x is batch × heads × length × head size.
at::Tensor reference_rotation(const at::Tensor& x, const at::Tensor& angles) {
  const auto halves = x.chunk(2, -1);
  const auto turns = exact(angles).chunk(2, -1);
  return at::cat({halves[0] * turns[0] - halves[1] * turns[1], halves[1] * turns[0] + halves[0] * turns[1]},
                 -1);
}

at::Tensor reference_attention(const at::Tensor& qkv, const math::Heads& h, const at::Tensor& angles) {
  const auto parts = qkv.view({h.batch, h.length, -1, h.size})
                         .transpose(1, 2)
                         .split_with_sizes({h.queries, h.keys, h.keys}, 1);
  const auto turned = [&](const at::Tensor& part) {
    return angles.defined() ? reference_rotation(part, angles) : part;
  };
  const auto shared = [&](const at::Tensor& part) { return part.repeat_interleave(h.queries / h.keys, 1); };
  const at::Tensor ones = at::ones({h.length, h.length}, at::kBool);
  const at::Tensor unseen = h.window > 0 ? ones.triu(1).logical_or(ones.tril(-h.window)) : ones.triu(1);
  const at::Tensor scores = at::matmul(turned(parts[0]), shared(turned(parts[1])).transpose(2, 3)) /
                            std::sqrt(static_cast<double>(h.size));
  const at::Tensor out = at::matmul(scores.masked_fill(unseen, -INFINITY).softmax(-1), shared(parts[2]));
  return out.transpose(1, 2).reshape({h.batch * h.length, h.queries * h.size});
}

// ---- the functions of math.hpp

class FunctionChecker {
 public:
  FunctionChecker(at::Device device, at::ScalarType type) : device_(device), type_(type) {}

  double linear() const {
    Largest error;
    for (const bool with_bias : {false, true}) {
      const at::Tensor x = random({130, 72});
      const at::Tensor weight = random({56, 72});
      const at::Tensor bias = with_bias ? random({56}) : at::Tensor();
      at::Tensor expected = at::matmul(exact(x), exact(weight).t());
      if (with_bias) expected = expected + exact(bias);
      error.note(math::linear(x, weight, bias), expected);
      const at::Tensor dy = random({130, 56});
      error.note(math::linear_backward(dy, weight), at::matmul(exact(dy), exact(weight)));
    }
    return error.value();
  }

  double bias_backward() const {
    Largest error;
    for (const auto& [rows, columns] : {std::pair{3, 5}, {1, 768}, {4099, 768}}) {
      const at::Tensor dy = random({rows, columns});
      at::Tensor gradient = random({columns});
      const at::Tensor expected = exact(gradient) + exact(dy).sum(0);
      math::bias_backward(dy, gradient);
      error.note(gradient, expected);
    }
    return error.value();
  }

  double norm() const {
    Largest error;
    // Widths that a warp has, that a block has, and that are no multiple of anything.
    for (const auto& [rows, columns] :
         {std::pair{7, 33}, {5, 256}, {4099, 768}, {67, 1024}, {33, 2048}, {17, 2050}, {9, 8192}}) {
      for (const bool layer_norm : {true, false}) {
        for (const bool with_added : {true, false}) check_norm(rows, columns, layer_norm, with_added, error);
      }
    }
    return error.value();
  }

  double gelu() const {
    Largest error;
    for (const auto& [rows, columns] : {std::pair{7, 13}, {513, 3072}}) {
      const at::Tensor x = random({rows, columns});
      const at::Tensor reference = leaf(x);
      const at::Tensor expected = at::gelu(reference, "tanh");
      error.note(math::gelu(x), expected);
      const at::Tensor dy = random({rows, columns});
      at::Tensor bias_gradient = random({columns});
      const at::Tensor bias_before = exact(bias_gradient);
      expected.backward(exact(dy));
      error.note(math::gelu_backward(x, dy, bias_gradient), reference.grad());
      error.note(bias_gradient, bias_before + reference.grad().sum(0));
    }
    return error.value();
  }

  double swiglu() const {
    Largest error;
    for (const auto& [rows, columns] : {std::pair{5, 9}, {257, 688}}) {
      const at::Tensor x = random({rows, 2 * columns});
      const at::Tensor reference = leaf(x);
      const auto halves = reference.chunk(2, 1);
      const at::Tensor expected = at::silu(halves[0]) * halves[1];
      error.note(math::swiglu(x), expected);
      const at::Tensor dy = random({rows, columns});
      expected.backward(exact(dy));
      error.note(math::swiglu_backward(x, dy), reference.grad());
    }
    return error.value();
  }

  // Each with and without a gate, with and without a bias before it.
  double activations() const {
    Largest error;
    for (const auto activation :
         {model::Activation::gelu, model::Activation::gelu_tanh, model::Activation::silu}) {
      for (const bool gated : {false, true}) {
        for (const bool with_bias : {false, true}) check_activation(activation, gated, with_bias, error);
      }
    }
    return error.value();
  }

  double attention() const {
    Largest error;
    const std::array<math::Heads, 7> shapes{{
        {.batch = 2, .length = 256, .queries = 12, .keys = 12, .size = 64},
        {.batch = 2, .length = 200, .queries = 8, .keys = 2, .size = 128},  // shared keys
        {.batch = 1, .length = 33, .queries = 4, .keys = 2, .size = 10},    // no multiple of anything
        {.batch = 1, .length = 129, .queries = 2, .keys = 1, .size = 160},  // longer than cuDNN takes
        {.batch = 2, .length = 300, .queries = 4, .keys = 2, .size = 32, .window = 100},
        {.batch = 1, .length = 300, .queries = 2, .keys = 2, .size = 16, .window = 1},
        {.batch = 1, .length = 129, .queries = 2, .keys = 1, .size = 64, .window = 128},
    }};
    for (const math::Heads& heads : shapes) {
      for (const bool rotary : {false, true}) {
        for (const bool with_bias : {false, true}) check_attention(heads, rotary, with_bias, error);
      }
    }
    return error.value();
  }

  double embed() const {
    Largest error;
    constexpr std::int64_t first = 50;
    for (const auto& [entries, columns] : {std::pair{997, 768}, {61, 11}}) {
      at::Tensor tokens = at::randint(0, entries + 2 * first, {4099}, at::kLong);
      tokens.slice(0, 100, 1600).fill_(60);  // frequent, as some are
      const at::Tensor table = random({entries, columns});
      const at::Tensor inside = (tokens >= first).logical_and(tokens < first + entries);
      const at::Tensor places = (tokens - first).clamp(0, entries - 1);
      const at::Tensor mask = inside.to(at::kDouble).unsqueeze(1);
      const at::Tensor here = tokens.to(device_);
      error.note(math::embed(here, table, first), exact(table).index_select(0, places) * mask);
      const at::Tensor dout = random({tokens.numel(), columns});
      at::Tensor gradient = random({entries, columns});
      const at::Tensor expected = exact(gradient).index_add(0, places, exact(dout) * mask);
      math::embed_backward(here, dout, first, gradient);
      error.note(gradient, expected);
    }
    return error.value();
  }

  double positions() const {
    Largest error;
    for (const auto& [rows, columns, begin, length] :
         {std::array{96, 768, 5, 32}, {7, 11, 2, 3}, {4, 64, 6, 9}}) {
      const at::Tensor table = random({length, columns});
      at::Tensor x = random({rows, columns});
      const at::Tensor places = (at::arange(rows, at::kLong) + begin).remainder(length);
      const at::Tensor expected = exact(x) + exact(table).index_select(0, places);
      math::add_positions(x, table, begin, length);
      error.note(x, expected);
      const at::Tensor dx = random({rows, columns});
      at::Tensor gradient = random({length, columns});
      const at::Tensor expected_gradient = exact(gradient).index_add(0, places, exact(dx));
      math::add_positions_backward(dx, begin, length, gradient);
      error.note(gradient, expected_gradient);
    }
    return error.value();
  }

  double cross_entropy() const {
    Largest error;
    for (const auto& [rows, columns, valid] : {std::array{9, 133, 131}, {67, 50304, 50257}}) {
      const Loss loss = make_loss(rows, columns, valid);
      at::Tensor logits = loss.logits.clone();
      const math::Slice slice{.first = 0, .valid = valid};
      error.note(math::cross_entropy(logits, loss.targets, factor, slice, true), loss.losses);
      error.note(logits, loss.gradient);
      logits = loss.logits.clone();
      error.note(math::cross_entropy(logits, loss.targets, factor, slice, false), loss.losses);
    }
    return error.value();
  }

  // Two slices of the vocabulary, as two ranks have them.
  double cut_cross_entropy() const {
    Largest error;
    for (const auto& [rows, columns, cut] : {std::array{9, 133, 70}, {33, 8192, 5000}}) {
      const Loss loss = make_loss(rows, columns, columns);
      const std::array<math::Slice, 2> slices{{{0, cut}, {cut, columns - cut}}};
      std::array<at::Tensor, 2> logits;
      for (std::size_t i = 0; i < 2; ++i) {
        logits.at(i) = loss.logits.slice(1, slices.at(i).first, slices.at(i).first + slices.at(i).valid);
        logits.at(i) = logits.at(i).contiguous();
      }
      const at::Tensor maxima =
          at::maximum(math::row_maxima(logits[0], slices[0]), math::row_maxima(logits[1], slices[1]));
      at::Tensor both = math::exponential_sums(logits[0], loss.targets, maxima, slices[0]);
      both += math::exponential_sums(logits[1], loss.targets, maxima, slices[1]);
      error.note(both[0].log() - both[1], loss.losses);
      for (std::size_t i = 0; i < 2; ++i) {
        math::cross_entropy_gradient(logits.at(i), loss.targets, maxima, both[0], factor, slices.at(i));
      }
      error.note(at::cat({logits[0], logits[1]}, 1), loss.gradient);
    }
    return error.value();
  }

  double sums() const {
    Largest error;
    for (const std::int64_t begin : {0, 3}) {
      const at::Tensor x = random({1'000'003}).slice(0, begin);
      error.note(math::sum_of_squares(x), exact(x).pow(2).sum());
      at::Tensor sum = random({1'000'003}).slice(0, begin).to(at::kFloat);
      const at::Tensor expected = exact(sum) + exact(x);
      math::add(x, sum);
      error.note(sum, expected);
    }
    return error.value();
  }

  double adamw() const {
    Largest error;
    // Where the gradients of microbatches were added up, they are f32.
    for (const at::ScalarType gradient_type : {type_, at::kFloat}) {
      for (const std::int64_t begin : {0, 3}) check_adamw(gradient_type, begin, error);
    }
    return error.value();
  }

 private:
  static constexpr double factor = 0.25;

  struct Loss {
    at::Tensor logits;
    at::Tensor targets;
    at::Tensor losses;
    at::Tensor gradient;
  };

  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape, at::kFloat).to(device_, type_); }

  void check_norm(std::int64_t rows, std::int64_t columns, bool layer_norm, bool with_added,
                  Largest& error) const {
    constexpr double epsilon = 1e-5;
    const at::Tensor x = random({rows, columns});
    const at::Tensor added = with_added ? random({rows, columns}) : at::Tensor();
    const at::Tensor weight = random({columns});
    const at::Tensor bias = layer_norm ? random({columns}) : at::Tensor();
    const math::Norm normed = math::norm(x, added, weight, bias, epsilon);
    if (with_added) error.note(normed.sum, exact(x) + exact(added));

    // The sum is rounded before it is normalized; the rest is to follow from that.
    const at::Tensor sum = leaf(normed.sum);
    const at::Tensor exact_weight = leaf(weight);
    const at::Tensor exact_bias = layer_norm ? leaf(bias) : at::Tensor();
    const at::Tensor expected = reference_norm(sum, exact_weight, exact_bias, epsilon);
    error.note(normed.out, expected);

    const at::Tensor dy = random({rows, columns});
    at::Tensor weight_gradient = random({columns});
    at::Tensor bias_gradient = layer_norm ? random({columns}) : at::Tensor();
    const at::Tensor weight_before = exact(weight_gradient);
    const at::Tensor bias_before = layer_norm ? exact(bias_gradient) : at::Tensor();
    const at::Tensor dx = math::norm_backward(normed, dy, weight, added, weight_gradient, bias_gradient);
    expected.backward(exact(dy));
    error.note(dx, with_added ? sum.grad() + exact(added) : sum.grad());
    error.note(weight_gradient, weight_before + exact_weight.grad());
    if (layer_norm) error.note(bias_gradient, bias_before + exact_bias.grad());
  }

  void check_activation(model::Activation activation, bool gated, bool with_bias, Largest& error) const {
    constexpr std::int64_t rows = 67;
    constexpr std::int64_t columns = 90;
    const std::int64_t inputs = gated ? 2 * columns : columns;
    const at::Tensor x = random({rows, inputs});
    const at::Tensor reference = leaf(x);
    const auto plain = [&](const at::Tensor& values) {
      if (activation == model::Activation::silu) return at::silu(values);
      return at::gelu(values, activation == model::Activation::gelu ? "none" : "tanh");
    };
    const auto halves = reference.chunk(2, 1);
    const at::Tensor expected = gated ? plain(halves[0]) * halves[1] : plain(reference);
    error.note(math::activate(x, activation, gated), expected);
    const at::Tensor dy = random({rows, columns});
    expected.backward(exact(dy));
    at::Tensor bias_gradient = with_bias ? random({inputs}) : at::Tensor();
    const at::Tensor bias_before = with_bias ? exact(bias_gradient) : at::Tensor();
    error.note(math::activate_backward(x, dy, activation, gated, bias_gradient), reference.grad());
    if (with_bias) error.note(bias_gradient, bias_before + reference.grad().sum(0));
  }

  void check_attention(const math::Heads& h, bool rotary, bool with_bias, Largest& error) const {
    const std::int64_t rows = h.batch * h.length;
    const std::int64_t columns = (h.queries + 2 * h.keys) * h.size;
    const at::Tensor angles =
        rotary ? math::rotary_angles(h.length, model::frequencies({}, h.size), 1.2, device_) : at::Tensor();
    at::Tensor qkv = random({rows, columns});
    const at::Tensor reference = leaf(qkv);
    const at::Tensor expected = reference_attention(reference, h, angles);
    const math::Attended attended = math::attention(qkv, h, angles);
    error.note(attended.out, expected);

    const at::Tensor dout = random({rows, h.queries * h.size});
    at::Tensor bias_gradient = with_bias ? random({columns}) : at::Tensor();
    const at::Tensor bias_before = with_bias ? exact(bias_gradient) : at::Tensor();
    const at::Tensor dqkv = math::attention_backward(qkv, attended, dout, h, angles, bias_gradient);
    expected.backward(exact(dout));
    error.note(dqkv, reference.grad());
    if (with_bias) error.note(bias_gradient, bias_before + reference.grad().sum(0));
  }

  Loss make_loss(std::int64_t rows, std::int64_t columns, std::int64_t valid) const {
    Loss loss{.logits = random({rows, columns}).mul_(3)};
    const at::Tensor targets = at::randint(0, valid, {rows}, at::kLong);
    loss.targets = targets.to(device_);
    const at::Tensor reference = leaf(loss.logits);
    loss.losses =
        -at::log_softmax(reference.slice(1, 0, valid), 1).gather(1, targets.unsqueeze(1)).squeeze(1);
    (loss.losses.sum() * factor).backward();
    loss.gradient = reference.grad();
    return loss;
  }

  void check_adamw(at::ScalarType gradient_type, std::int64_t begin, Largest& error) const {
    constexpr std::int64_t count = 100'003;
    math::AdamStep step{.learning_rate = 1e-2,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .epsilon = 1e-8,
                        .decay = 0.1,
                        .gradient_scale = 0.5,
                        .step = 1};
    const auto some = [&](at::ScalarType type) { return random({count}).to(type).slice(0, begin); };
    const at::Tensor master = some(at::kFloat);
    const at::Tensor weight = type_ == at::kFloat ? master : some(type_);
    const at::Tensor first = at::zeros_like(master);
    const at::Tensor second = at::zeros_like(master);
    at::Tensor expected = exact(master);
    at::Tensor m = at::zeros_like(expected);
    at::Tensor v = at::zeros_like(expected);
    for (; step.step <= 3; ++step.step) {
      const at::Tensor gradient = some(gradient_type);
      math::adamw(step, gradient, master, first, second, weight);
      const at::Tensor g = exact(gradient) * step.gradient_scale;
      const auto steps = static_cast<double>(step.step);
      m = m * step.beta1 + g * (1 - step.beta1);
      v = v * step.beta2 + g * g * (1 - step.beta2);
      expected = expected * (1 - step.learning_rate * step.decay) -
                 step.learning_rate * m / (1 - std::pow(step.beta1, steps)) /
                     ((v / (1 - std::pow(step.beta2, steps))).sqrt() + step.epsilon);
    }
    error.note(master, expected);
    error.note(weight, expected);
    error.note(first, m);
    error.note(second, v);
  }

  at::Device device_;
  at::ScalarType type_;
};

struct Function {
  const char* name;
  double (FunctionChecker::*error)() const;
};
constexpr std::array functions{Function{"linear", &FunctionChecker::linear},
                               Function{"bias_backward", &FunctionChecker::bias_backward},
                               Function{"norm", &FunctionChecker::norm},
                               Function{"gelu", &FunctionChecker::gelu},
                               Function{"swiglu", &FunctionChecker::swiglu},
                               Function{"activations", &FunctionChecker::activations},
                               Function{"attention", &FunctionChecker::attention},
                               Function{"embed", &FunctionChecker::embed},
                               Function{"positions", &FunctionChecker::positions},
                               Function{"cross_entropy", &FunctionChecker::cross_entropy},
                               Function{"cross_entropy, cut", &FunctionChecker::cut_cross_entropy},
                               Function{"sums", &FunctionChecker::sums},
                               Function{"adamw", &FunctionChecker::adamw}};

}  // namespace

void Largest::note(const at::Tensor& got, const at::Tensor& expected) { note(error_of(got, expected)); }

void check_functions(at::Device device, at::ScalarType type,
                     const std::function<void(const char* name, double error)>& note) {
  const FunctionChecker checker(device, type);
  for (const Function& function : functions) note(function.name, (checker.*function.error)());
}

}  // namespace tutti::train
