#include "learn/train/math.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <cmath>

#include "learn/train/math_host.hpp"
#ifdef TUTTI_CUDA
#include "learn/train/math_cuda.hpp"
#endif

namespace tutti::train::math {

// Without CUDA all is the host's, which says so when a tensor is not.
#ifdef TUTTI_CUDA
namespace device = gpu;
#else
namespace device = host;
#endif

std::int64_t vocabulary_multiple(at::Device device) { return device.is_cpu() ? 1 : 128; }

Result<> check_device(at::Device where) {
  return where.is_cuda() ? device::check_device(where) : host::check_device(where);
}

void finish(at::Device where) { where.is_cuda() ? device::finish(where) : host::finish(where); }

double peak_operations(at::Device where, at::ScalarType type) {
  return where.is_cuda() && type == at::kBFloat16 ? device::peak_bf16_operations(where) : 0;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor linear_backward(const at::Tensor& dy, const at::Tensor& weight) { return at::mm(dy, weight); }

at::Tensor rotary_angles(std::int64_t length, const std::vector<double>& frequencies, double factor,
                         at::Device device) {
  const auto half = static_cast<std::int64_t>(frequencies.size());
  const std::int64_t head_size = 2 * half;
  at::Tensor angles = at::empty({length, head_size}, at::kFloat);
  auto* const values = angles.data_ptr<float>();
  for (std::int64_t position = 0; position < length; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
      values[position * head_size + i] = static_cast<float>(factor * std::cos(angle));
      values[position * head_size + half + i] = static_cast<float>(factor * std::sin(angle));
    }
  }
  return angles.to(device);
}

void bias_backward(const at::Tensor& dy, at::Tensor gradient) {
  return dy.is_cuda() ? device::bias_backward(dy, gradient) : host::bias_backward(dy, gradient);
}

Norm norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
          double epsilon) {
  return x.is_cuda() ? device::norm(x, added, weight, bias, epsilon)
                     : host::norm(x, added, weight, bias, epsilon);
}

at::Tensor norm_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& weight,
                         const at::Tensor& added, at::Tensor weight_gradient, at::Tensor bias_gradient) {
  return dy.is_cuda() ? device::norm_backward(norm, dy, weight, added, weight_gradient, bias_gradient)
                      : host::norm_backward(norm, dy, weight, added, weight_gradient, bias_gradient);
}

at::Tensor gelu(const at::Tensor& x) { return x.is_cuda() ? device::gelu(x) : host::gelu(x); }

at::Tensor gelu_backward(const at::Tensor& x, at::Tensor dy, at::Tensor bias_gradient) {
  return x.is_cuda() ? device::gelu_backward(x, dy, bias_gradient)
                     : host::gelu_backward(x, dy, bias_gradient);
}

at::Tensor swiglu(const at::Tensor& x) { return x.is_cuda() ? device::swiglu(x) : host::swiglu(x); }

at::Tensor swiglu_backward(const at::Tensor& x, const at::Tensor& dy) {
  return x.is_cuda() ? device::swiglu_backward(x, dy) : host::swiglu_backward(x, dy);
}

namespace {

at::Tensor activated(const at::Tensor& x, model::Activation activation) {
  switch (activation) {
    case model::Activation::gelu:
      return at::gelu(x, "none");
    case model::Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case model::Activation::silu:
      break;
  }
  return at::silu(x);
}

at::Tensor activated_backward(const at::Tensor& x, const at::Tensor& dy, model::Activation activation) {
  switch (activation) {
    case model::Activation::gelu:
      return at::gelu_backward(dy, x, "none");
    case model::Activation::gelu_tanh:
      return at::gelu_backward(dy, x, "tanh");
    case model::Activation::silu:
      break;
  }
  return at::silu_backward(dy, x);
}

}  // namespace

// The usual ones have loops of their own, in one pass; the others are libtorch's.
at::Tensor activate(const at::Tensor& x, model::Activation activation, bool gated) {
  if (!gated) return activation == model::Activation::gelu_tanh ? math::gelu(x) : activated(x, activation);
  if (activation == model::Activation::silu) return math::swiglu(x);
  const auto halves = x.chunk(2, 1);
  return at::mul(activated(halves[0].contiguous(), activation), halves[1]);
}

at::Tensor activate_backward(const at::Tensor& x, at::Tensor dy, model::Activation activation, bool gated,
                             at::Tensor bias_gradient) {
  at::Tensor dx;
  if (!gated) {
    if (activation == model::Activation::gelu_tanh && bias_gradient.defined())
      return math::gelu_backward(x, std::move(dy), bias_gradient);
    dx = activated_backward(x, dy, activation);
  } else if (activation == model::Activation::silu) {
    dx = math::swiglu_backward(x, dy);
  } else {
    const auto halves = x.chunk(2, 1);
    const at::Tensor gate = halves[0].contiguous();
    dx = at::cat({activated_backward(gate, at::mul(dy, halves[1]), activation),
                  at::mul(dy, activated(gate, activation))},
                 1);
  }
  if (bias_gradient.defined()) math::bias_backward(dx, bias_gradient);
  return dx;
}

Attended attention(at::Tensor& qkv, const Heads& heads, const at::Tensor& angles) {
  return qkv.is_cuda() ? device::attention(qkv, heads, angles) : host::attention(qkv, heads, angles);
}

at::Tensor attention_backward(const at::Tensor& qkv, const Attended& attended, const at::Tensor& dout,
                              const Heads& heads, const at::Tensor& angles, at::Tensor bias_gradient) {
  return qkv.is_cuda() ? device::attention_backward(qkv, attended, dout, heads, angles, bias_gradient)
                       : host::attention_backward(qkv, attended, dout, heads, angles, bias_gradient);
}

at::Tensor embed(const at::Tensor& tokens, const at::Tensor& table, std::int64_t first) {
  return table.is_cuda() ? device::embed(tokens, table, first) : host::embed(tokens, table, first);
}

void embed_backward(const at::Tensor& tokens, const at::Tensor& dout, std::int64_t first,
                    at::Tensor gradient) {
  return dout.is_cuda() ? device::embed_backward(tokens, dout, first, gradient)
                        : host::embed_backward(tokens, dout, first, gradient);
}

void add_positions(at::Tensor& x, const at::Tensor& table, std::int64_t begin, std::int64_t length) {
  return x.is_cuda() ? device::add_positions(x, table, begin, length)
                     : host::add_positions(x, table, begin, length);
}

void add_positions_backward(const at::Tensor& dx, std::int64_t begin, std::int64_t length,
                            at::Tensor gradient) {
  return dx.is_cuda() ? device::add_positions_backward(dx, begin, length, gradient)
                      : host::add_positions_backward(dx, begin, length, gradient);
}

at::Tensor cross_entropy(at::Tensor& logits, const at::Tensor& targets, double factor, const Slice& slice,
                         bool with_gradients) {
  return logits.is_cuda() ? device::cross_entropy(logits, targets, factor, slice, with_gradients)
                          : host::cross_entropy(logits, targets, factor, slice, with_gradients);
}

at::Tensor row_maxima(const at::Tensor& logits, const Slice& slice) {
  return logits.is_cuda() ? device::row_maxima(logits, slice) : host::row_maxima(logits, slice);
}

at::Tensor exponential_sums(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const Slice& slice) {
  return logits.is_cuda() ? device::exponential_sums(logits, targets, maxima, slice)
                          : host::exponential_sums(logits, targets, maxima, slice);
}

void cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const at::Tensor& sums, double factor, const Slice& slice) {
  return logits.is_cuda() ? device::cross_entropy_gradient(logits, targets, maxima, sums, factor, slice)
                          : host::cross_entropy_gradient(logits, targets, maxima, sums, factor, slice);
}

at::Tensor sum_of_squares(const at::Tensor& flat) {
  return flat.is_cuda() ? device::sum_of_squares(flat) : host::sum_of_squares(flat);
}

void add(const at::Tensor& x, at::Tensor sum) {
  return x.is_cuda() ? device::add(x, sum) : host::add(x, sum);
}

void adamw(const AdamStep& options, const at::Tensor& gradient, at::Tensor master, at::Tensor first,
           at::Tensor second, at::Tensor weight) {
  return master.is_cuda() ? device::adamw(options, gradient, master, first, second, weight)
                          : host::adamw(options, gradient, master, first, second, weight);
}

}  // namespace tutti::train::math
