#include "learn/train/math_host.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "base/check.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/kernels.hpp"

namespace tutti::train::math::host {
namespace {

float* data(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (!tensor.is_cpu()) {
    throw Failure(failed("this tutti-worker has no arithmetic for " + tensor.device().str())
                      .remedy("build it where there are nvcc and a libtorch with CUDA"));
  }
  TUTTI_CHECK(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat);
  return tensor.data_ptr<float>();
}

const std::int64_t* tokens_of(const at::Tensor& tokens) {
  TUTTI_CHECK(tokens.is_contiguous() && tokens.scalar_type() == at::kLong);
  return tokens.data_ptr<std::int64_t>();
}

kernels::Size size_of(const at::Tensor& matrix) { return {matrix.size(0), matrix.size(1)}; }

kernels::Attention shape_of(const Heads& heads) {
  return {heads.batch, heads.length, heads.queries, heads.keys, heads.size, heads.window};
}

void rotate(const at::Tensor& qkv, const Heads& heads, const at::Tensor& angles, bool inverse) {
  if (!angles.defined()) return;
  kernels::rotate({.rows = qkv.size(0),
                   .stride = qkv.size(1),
                   .heads = heads.queries + heads.keys,
                   .head_size = heads.size,
                   .length = heads.length,
                   .angles = data(angles),
                   .inverse = inverse},
                  data(qkv));
}

}  // namespace

Result<> check_device(at::Device) { return {}; }

void finish(at::Device) {}

double peak_bf16_operations(at::Device) { return 0; }

void bias_backward(const at::Tensor& dy, at::Tensor gradient) {
  kernels::column_sums(size_of(dy), data(dy), data(gradient));
}

Norm norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
          double epsilon) {
  Norm result{.sum = added.defined() ? at::empty_like(x) : x, .out = at::empty_like(x)};
  result.scale = at::empty({x.size(0)}, x.options());
  if (bias.defined()) result.mean = at::empty({x.size(0)}, x.options());
  kernels::norm_forward(size_of(x), {.x = data(x),
                                     .added = data(added),
                                     .weight = data(weight),
                                     .bias = data(bias),
                                     .epsilon = static_cast<float>(epsilon),
                                     .sum = added.defined() ? data(result.sum) : nullptr,
                                     .out = data(result.out),
                                     .mean = data(result.mean),
                                     .scale = data(result.scale)});
  return result;
}

at::Tensor norm_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& weight,
                         const at::Tensor& added, at::Tensor weight_gradient, at::Tensor bias_gradient) {
  at::Tensor dx = at::empty_like(dy);
  kernels::norm_backward(size_of(dy), {.dy = data(dy),
                                       .x = data(norm.sum),
                                       .weight = data(weight),
                                       .mean = data(norm.mean),
                                       .scale = data(norm.scale),
                                       .added = data(added),
                                       .dx = data(dx),
                                       .weight_gradient = data(weight_gradient),
                                       .bias_gradient = data(bias_gradient)});
  return dx;
}

at::Tensor gelu(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  kernels::gelu_forward(x.numel(), data(x), data(y));
  return y;
}

at::Tensor gelu_backward(const at::Tensor& x, at::Tensor dy, at::Tensor bias_gradient) {
  kernels::gelu_backward(x.numel(), data(x), data(dy), data(dy));
  kernels::column_sums(size_of(dy), data(dy), data(bias_gradient));
  return dy;
}

at::Tensor swiglu(const at::Tensor& x) {
  at::Tensor y = at::empty({x.size(0), x.size(1) / 2}, x.options());
  kernels::swiglu_forward(size_of(y), data(x), data(y));
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& x, const at::Tensor& dy) {
  at::Tensor dx = at::empty_like(x);
  kernels::swiglu_backward(size_of(dy), data(x), data(dy), data(dx));
  return dx;
}

Attended attention(at::Tensor& qkv, const Heads& heads, const at::Tensor& angles) {
  Attended attended;
  attended.out = at::empty({qkv.size(0), heads.queries * heads.size}, qkv.options());
  attended.kept = at::empty({heads.batch, heads.queries, heads.length, heads.length}, qkv.options());
  rotate(qkv, heads, angles, false);
  kernels::attention_forward(shape_of(heads), data(qkv), data(attended.out), data(attended.kept));
  return attended;
}

at::Tensor attention_backward(const at::Tensor& qkv, const Attended& attended, const at::Tensor& dout,
                              const Heads& heads, const at::Tensor& angles, at::Tensor bias_gradient) {
  at::Tensor dqkv = at::empty_like(qkv);
  kernels::attention_backward(shape_of(heads), data(qkv), data(attended.kept), data(dout), data(dqkv));
  rotate(dqkv, heads, angles, true);
  if (bias_gradient.defined()) kernels::column_sums(size_of(dqkv), data(dqkv), data(bias_gradient));
  return dqkv;
}

at::Tensor embed(const at::Tensor& tokens, const at::Tensor& table, std::int64_t first) {
  at::Tensor out = at::empty({tokens.numel(), table.size(1)}, table.options());
  kernels::embed(size_of(out), tokens_of(tokens), first, table.size(0), data(table), data(out));
  return out;
}

void embed_backward(const at::Tensor& tokens, const at::Tensor& dout, std::int64_t first,
                    at::Tensor gradient) {
  kernels::embed_backward(size_of(dout), tokens_of(tokens), first, gradient.size(0), data(dout),
                          data(gradient));
}

void add_positions(at::Tensor& x, const at::Tensor& table, std::int64_t begin, std::int64_t length) {
  kernels::add_positions(size_of(x), begin, length, data(table), data(x));
}

void add_positions_backward(const at::Tensor& dx, std::int64_t begin, std::int64_t length,
                            at::Tensor gradient) {
  kernels::add_positions_backward(size_of(dx), begin, length, data(dx), data(gradient));
}

at::Tensor cross_entropy(at::Tensor& logits, const at::Tensor& targets, double factor, const Slice& slice,
                         bool with_gradients) {
  const at::Tensor maxima = host::row_maxima(logits, slice);
  const at::Tensor both = host::exponential_sums(logits, targets, maxima, slice);
  if (with_gradients) host::cross_entropy_gradient(logits, targets, maxima, both[0], factor, slice);
  return both[0].log() - both[1];
}

at::Tensor row_maxima(const at::Tensor& logits, const Slice& slice) {
  at::Tensor maxima = at::empty({logits.size(0)}, logits.options());
  kernels::row_maxima(size_of(logits), slice.valid, data(logits), data(maxima));
  return maxima;
}

at::Tensor exponential_sums(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const Slice& slice) {
  at::Tensor both = at::empty({2, logits.size(0)}, logits.options());
  kernels::exponentials(size_of(logits), slice.valid, tokens_of(targets), slice.first, data(maxima),
                        data(logits), data(both), data(both) + logits.size(0));
  return both;
}

void cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor&,
                            const at::Tensor& sums, double factor, const Slice& slice) {
  kernels::cross_entropy_gradient(size_of(logits), slice.valid, tokens_of(targets), slice.first, data(sums),
                                  static_cast<float>(factor), data(logits));
}

at::Tensor sum_of_squares(const at::Tensor& flat) {
  return at::scalar_tensor(kernels::sum_of_squares(flat.numel(), data(flat)), at::kDouble);
}

void add(const at::Tensor& x, at::Tensor sum) { kernels::add(x.numel(), data(x), data(sum)); }

void adamw(const AdamStep& o, const at::Tensor& gradient, at::Tensor master, at::Tensor first,
           at::Tensor second, at::Tensor weight) {
  TUTTI_CHECK(weight.data_ptr() == master.data_ptr(), "the host computes with the master weights");
  const auto steps = static_cast<double>(o.step);
  kernels::adamw(gradient.numel(),
                 {.learning_rate = static_cast<float>(o.learning_rate),
                  .beta1 = static_cast<float>(o.beta1),
                  .beta2 = static_cast<float>(o.beta2),
                  .epsilon = static_cast<float>(o.epsilon),
                  .decay = static_cast<float>(o.decay),
                  .correction1 = static_cast<float>(1.0 - std::pow(o.beta1, steps)),
                  .correction2 = static_cast<float>(1.0 - std::pow(o.beta2, steps)),
                  .gradient_scale = static_cast<float>(o.gradient_scale)},
                 data(gradient), data(master), data(first), data(second));
}

}  // namespace tutti::train::math::host
