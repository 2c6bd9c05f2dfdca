#include "learn/train/math_cuda.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/check.hpp"
#include "learn/train/capability.hpp"
#include "learn/train/cuda/kernels.hpp"
#include "learn/train/failure.hpp"

namespace tutti::train::math::gpu {
namespace {

cuda::Type type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return cuda::Type::f32;
    case at::kBFloat16:
      return cuda::Type::bf16;
    default:
      throw Failure(failed(std::string("a GPU trains in Float or BFloat16, not in ") +
                           c10::toString(tensor.scalar_type())));
  }
}

void check_place(const at::Tensor& tensor) { TUTTI_CHECK(tensor.is_cuda() && tensor.is_contiguous()); }

// The elements of a tensor of the expected type; null for one that is not there.
void* data(const at::Tensor& tensor, cuda::Type type) {
  if (!tensor.defined()) return nullptr;
  check_place(tensor);
  TUTTI_CHECK(type_of(tensor) == type, "the tensors of a call have one type");
  return tensor.data_ptr();
}

float* floats(const at::Tensor& tensor) { return static_cast<float*>(data(tensor, cuda::Type::f32)); }

const std::int64_t* tokens_of(const at::Tensor& tokens) {
  check_place(tokens);
  TUTTI_CHECK(tokens.scalar_type() == at::kLong);
  return tokens.data_ptr<std::int64_t>();
}

cuda::Size size_of(const at::Tensor& matrix) { return {matrix.size(0), matrix.size(1)}; }

at::Tensor new_floats(const at::Tensor& beside, at::IntArrayRef shape) {
  return at::empty(shape, beside.options().dtype(at::kFloat));
}

// The stream that work on a tensor goes to. Its device is the current one until the end of the launch.
class On {
 public:
  explicit On(const at::Tensor& tensor)
      : guard_(tensor.device()), stream_(c10::cuda::getCurrentCUDAStream(tensor.device().index())) {}
  cuda::Stream stream() const { return stream_.stream(); }

 private:
  c10::cuda::CUDAGuard guard_;
  c10::cuda::CUDAStream stream_;
};

cuda::Logits logits_of(const at::Tensor& logits, const Slice& slice, const at::Tensor& targets) {
  const cuda::Type type = type_of(logits);
  return {.type = type,
          .size = size_of(logits),
          .valid = slice.valid,
          .first = slice.first,
          .targets = targets.defined() ? tokens_of(targets) : nullptr,
          .logits = data(logits, type)};
}

}  // namespace

void finish(at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  c10::cuda::device_synchronize();
}

// One that does not even tell its name says why when it is used.
Result<> check_device(at::Device device) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) return {};
  return check_capability(properties.name, properties.major, properties.minor);
}

double peak_bf16_operations(at::Device device) {
  struct Known {
    std::string_view name;
    double operations;
  };
  constexpr std::array known{Known{"B200", 2250e12}, Known{"H200", 989e12}, Known{"H100", 989e12},
                             Known{"A100", 312e12}, Known{"L40S", 362e12}};
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) return 0;
  const std::string_view name = properties.name;
  for (const Known& one : known) {
    if (name.find(one.name) != std::string_view::npos) return one.operations;
  }
  return 0;
}

void bias_backward(const at::Tensor& dy, at::Tensor gradient) {
  const cuda::Type type = type_of(dy);
  const cuda::Size size = size_of(dy);
  const at::Tensor scratch = new_floats(dy, {cuda::column_scratch(size)});
  cuda::column_sums(type, size, data(dy, type), data(gradient, type), floats(scratch), On(dy).stream());
}

// ---- norms

Norm norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
          double epsilon) {
  const cuda::Type type = type_of(x);
  Norm result{.sum = added.defined() ? at::empty_like(x) : x, .out = at::empty_like(x)};
  result.scale = new_floats(x, {x.size(0)});
  if (bias.defined()) result.mean = new_floats(x, {x.size(0)});
  cuda::norm_forward({.type = type,
                      .size = size_of(x),
                      .epsilon = static_cast<float>(epsilon),
                      .x = data(x, type),
                      .added = data(added, type),
                      .weight = data(weight, type),
                      .bias = data(bias, type),
                      .sum = added.defined() ? data(result.sum, type) : nullptr,
                      .out = data(result.out, type),
                      .mean = floats(result.mean),
                      .scale = floats(result.scale)},
                     On(x).stream());
  return result;
}

at::Tensor norm_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& weight,
                         const at::Tensor& added, at::Tensor weight_gradient, at::Tensor bias_gradient) {
  const cuda::Type type = type_of(dy);
  const cuda::Size size = size_of(dy);
  at::Tensor dx = at::empty_like(dy);
  const at::Tensor scratch = new_floats(dy, {cuda::norm_scratch(size)});
  cuda::norm_backward({.type = type,
                       .size = size,
                       .dy = data(dy, type),
                       .x = data(norm.sum, type),
                       .weight = data(weight, type),
                       .mean = floats(norm.mean),
                       .scale = floats(norm.scale),
                       .added = data(added, type),
                       .dx = data(dx, type),
                       .weight_gradient = data(weight_gradient, type),
                       .bias_gradient = data(bias_gradient, type),
                       .scratch = floats(scratch)},
                      On(dy).stream());
  return dx;
}

// ---- activations

at::Tensor gelu(const at::Tensor& x) {
  const cuda::Type type = type_of(x);
  at::Tensor y = at::empty_like(x);
  cuda::gelu_forward(type, x.numel(), data(x, type), data(y, type), On(x).stream());
  return y;
}

at::Tensor gelu_backward(const at::Tensor& x, at::Tensor dy, at::Tensor bias_gradient) {
  const cuda::Type type = type_of(x);
  const cuda::Size size = size_of(x);
  const at::Tensor scratch = new_floats(x, {cuda::column_scratch(size)});
  cuda::gelu_backward({.type = type,
                       .size = size,
                       .x = data(x, type),
                       .dy = data(dy, type),
                       .dx = data(dy, type),
                       .bias_gradient = data(bias_gradient, type),
                       .scratch = floats(scratch)},
                      On(x).stream());
  return dy;
}

at::Tensor swiglu(const at::Tensor& x) {
  const cuda::Type type = type_of(x);
  at::Tensor y = at::empty({x.size(0), x.size(1) / 2}, x.options());
  cuda::swiglu_forward(type, size_of(y), data(x, type), data(y, type), On(x).stream());
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& x, const at::Tensor& dy) {
  const cuda::Type type = type_of(x);
  at::Tensor dx = at::empty_like(x);
  cuda::swiglu_backward(type, size_of(dy), data(x, type), data(dy, type), data(dx, type), On(x).stream());
  return dx;
}

// ---- attention

namespace {

// Batch × heads × length × head size each.
struct Parts {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

// Views into the rows, nothing is copied.
Parts parts_of(const at::Tensor& qkv, const Heads& h) {
  TUTTI_CHECK(qkv.is_contiguous());
  const std::int64_t width = qkv.size(1);
  const auto some = [&](std::int64_t first, std::int64_t count) {
    return qkv.as_strided({h.batch, count, h.length, h.size}, {h.length * width, h.size, width, 1},
                          qkv.storage_offset() + first * h.size);
  };
  return {some(0, h.queries), some(h.queries, h.keys), some(h.queries + h.keys, h.keys)};
}

at::Tensor heads_of(const at::Tensor& rows, const Heads& h) {
  return rows.view({h.batch, h.length, -1, h.size}).transpose(1, 2);
}

// The fused kernels lay their results out by rows already, and nothing is copied either.
at::Tensor rows_of(const at::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0) * heads.size(2), heads.size(1) * heads.size(3)});
}

enum class Way { cudnn, flash, plain };

// cuDNN's is the fastest from Hopper on; libtorch's flash attention takes longer heads and older GPUs.
// Neither has a window here.
Way way_for(const at::Tensor& qkv, const Heads& h) {
  if (h.window > 0) return Way::plain;
  if (qkv.scalar_type() != at::kBFloat16 || h.size % 8 != 0 || h.size > 256) return Way::plain;
  int generation = 0;
  cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, qkv.device().index());
  return generation >= 9 && h.size <= 128 && h.length > 1 ? Way::cudnn : Way::flash;
}

// Keys or values as often as queries share them.
at::Tensor shared(const at::Tensor& part, const Heads& h) {
  return h.keys == h.queries ? part : part.repeat_interleave(h.queries / h.keys, 1);
}

at::Tensor sum_of_shared(const at::Tensor& gradient, const Heads& h) {
  if (h.keys == h.queries) return gradient;
  return gradient.reshape({h.batch, h.keys, h.queries / h.keys, h.length, h.size}).sum(2);
}

double scale_of(const Heads& h) { return 1.0 / std::sqrt(static_cast<double>(h.size)); }

Attended plain_attention(const Parts& parts, const Heads& h) {
  at::Tensor scores = at::matmul(parts.q, shared(parts.k, h).transpose(2, 3)).mul_(scale_of(h));
  const at::Tensor ones = at::ones({h.length, h.length}, scores.options().dtype(at::kBool));
  at::Tensor unseen = ones.triu(1);
  if (h.window > 0) unseen.logical_or_(ones.tril(-h.window));
  const at::Tensor probabilities =
      scores.masked_fill_(unseen, -std::numeric_limits<float>::infinity()).softmax(-1);
  return {.out = rows_of(at::matmul(probabilities, shared(parts.v, h))), .kept = probabilities};
}

Parts plain_attention_backward(const Parts& parts, const at::Tensor& probabilities, const at::Tensor& dout,
                               const Heads& h) {
  const at::Tensor dprobabilities = at::matmul(dout, shared(parts.v, h).transpose(2, 3));
  const at::Tensor dscores =
      at::_softmax_backward_data(dprobabilities, probabilities, -1, probabilities.scalar_type())
          .mul_(scale_of(h));
  return {at::matmul(dscores, shared(parts.k, h)),
          sum_of_shared(at::matmul(dscores.transpose(2, 3), parts.q), h),
          sum_of_shared(at::matmul(probabilities.transpose(2, 3), dout), h)};
}

// What the fused kernels return: output, logarithms, …, and in the seventh and eighth place the random state.
template <class Returned>
Attended attended_of(const Returned& returned) {
  return {.out = rows_of(std::get<0>(returned)),
          .kept = std::get<1>(returned),
          .random_seed = std::get<6>(returned),
          .random_offset = std::get<7>(returned)};
}

Parts fused_attention_backward(Way way, const Parts& parts, const Attended& attended, const at::Tensor& dout,
                               const Heads& h) {
  const at::Tensor out = heads_of(attended.out, h);
  const at::Tensor none;
  auto [dq, dk, dv] = way == Way::cudnn
                          ? at::_scaled_dot_product_cudnn_attention_backward(
                                dout, parts.q, parts.k, parts.v, out, attended.kept, attended.random_seed,
                                attended.random_offset, /*attn_bias=*/none, /*cum_seq_q=*/none,
                                /*cum_seq_k=*/none, h.length, h.length, /*dropout_p=*/0.0, /*is_causal=*/true)
                          : at::_scaled_dot_product_flash_attention_backward(
                                dout, parts.q, parts.k, parts.v, out, attended.kept, /*cum_seq_q=*/none,
                                /*cum_seq_k=*/none, h.length, h.length, /*dropout_p=*/0.0, /*is_causal=*/true,
                                attended.random_seed, attended.random_offset);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

cuda::Rotation rotation_of(const at::Tensor& qkv, const Heads& h, const at::Tensor& angles) {
  const cuda::Type type = type_of(qkv);
  return {.type = type,
          .rows = qkv.size(0),
          .length = h.length,
          .heads = h.queries,
          .kv_heads = h.keys,
          .head_size = h.size,
          .angles = floats(angles),
          .qkv = data(qkv, type)};
}

void rotate_in_place(const at::Tensor& qkv, const Heads& h, const at::Tensor& angles) {
  cuda::Rotation rotation = rotation_of(qkv, h, angles);
  rotation.q = rotation.qkv;
  rotation.k = static_cast<char*>(rotation.qkv) + h.queries * h.size * qkv.element_size();
  rotation.q_stride = qkv.size(1);
  rotation.kv_stride = qkv.size(1);
  cuda::rotate(rotation, On(qkv).stream());
}

// The three gradients as one, turned back on the way.
void join_turned(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const Heads& h,
                 const at::Tensor& angles, const at::Tensor& dqkv) {
  cuda::Rotation rotation = rotation_of(dqkv, h, angles);
  rotation.inverse = true;
  rotation.q = data(dq, rotation.type);
  rotation.k = data(dk, rotation.type);
  rotation.v = data(dv, rotation.type);
  rotation.q_stride = dq.size(1);
  rotation.kv_stride = dk.size(1);
  cuda::rotate(rotation, On(dqkv).stream());
}

// The three gradients as one, summed on the way.
void join_summed(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& dqkv,
                 const at::Tensor& bias_gradient) {
  const cuda::Type type = type_of(dqkv);
  const at::Tensor scratch = new_floats(dqkv, {cuda::column_scratch(size_of(dqkv))});
  cuda::join({.type = type,
              .rows = dqkv.size(0),
              .q_columns = dq.size(1),
              .kv_columns = dk.size(1),
              .q = data(dq, type),
              .k = data(dk, type),
              .v = data(dv, type),
              .qkv = data(dqkv, type),
              .bias_gradient = data(bias_gradient, type),
              .scratch = floats(scratch)},
             On(dqkv).stream());
}

}  // namespace

Attended attention(at::Tensor& qkv, const Heads& h, const at::Tensor& angles) {
  // libtorch need not look whether a gradient is to be recorded.
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (angles.defined()) rotate_in_place(qkv, h, angles);
  const Parts parts = parts_of(qkv, h);
  switch (way_for(qkv, h)) {
    case Way::cudnn:
      return attended_of(at::_scaled_dot_product_cudnn_attention(
          parts.q, parts.k, parts.v, /*attn_bias=*/std::nullopt, /*compute_log_sumexp=*/true,
          /*dropout_p=*/0.0, /*is_causal=*/true));
    case Way::flash:
      return attended_of(at::_scaled_dot_product_flash_attention(parts.q, parts.k, parts.v, /*dropout_p=*/0.0,
                                                                 /*is_causal=*/true));
    case Way::plain:
      break;
  }
  return plain_attention(parts, h);
}

at::Tensor attention_backward(const at::Tensor& qkv, const Attended& attended, const at::Tensor& dout,
                              const Heads& h, const at::Tensor& angles, at::Tensor bias_gradient) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Parts parts = parts_of(qkv, h);
  const Way way = way_for(qkv, h);
  const Parts gradients = way == Way::plain
                              ? plain_attention_backward(parts, attended.kept, heads_of(dout, h), h)
                              : fused_attention_backward(way, parts, attended, heads_of(dout, h), h);
  const at::Tensor dq = rows_of(gradients.q);
  const at::Tensor dk = rows_of(gradients.k);
  const at::Tensor dv = rows_of(gradients.v);
  at::Tensor dqkv = at::empty_like(qkv);
  if (bias_gradient.defined() && !angles.defined()) {
    join_summed(dq, dk, dv, dqkv, bias_gradient);
  } else {
    join_turned(dq, dk, dv, h, angles, dqkv);
    if (bias_gradient.defined()) bias_backward(dqkv, bias_gradient);
  }
  return dqkv;
}

// ---- positions and tokens

at::Tensor embed(const at::Tensor& tokens, const at::Tensor& table, std::int64_t first) {
  const cuda::Type type = type_of(table);
  at::Tensor out = at::empty({tokens.numel(), table.size(1)}, table.options());
  cuda::embed({.type = type,
               .size = size_of(out),
               .tokens = tokens_of(tokens),
               .first = first,
               .entries = table.size(0)},
              data(table, type), data(out, type), On(table).stream());
  return out;
}

void embed_backward(const at::Tensor& tokens, const at::Tensor& dout, std::int64_t first,
                    at::Tensor gradient) {
  const cuda::Type type = type_of(dout);
  // The order of equal tokens is that of their rows: their sum is the same each time.
  const auto [sorted, order] = at::sort(tokens, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  cuda::embed_backward({.type = type,
                        .size = size_of(dout),
                        .tokens = tokens_of(sorted),
                        .first = first,
                        .entries = gradient.size(0)},
                       tokens_of(order), data(dout, type), data(gradient, type), On(dout).stream());
}

void add_positions(at::Tensor& x, const at::Tensor& table, std::int64_t begin, std::int64_t length) {
  const cuda::Type type = type_of(x);
  cuda::add_positions({.type = type, .size = size_of(x), .begin = begin, .length = length}, data(table, type),
                      data(x, type), On(x).stream());
}

void add_positions_backward(const at::Tensor& dx, std::int64_t begin, std::int64_t length,
                            at::Tensor gradient) {
  const cuda::Type type = type_of(dx);
  cuda::add_positions_backward({.type = type, .size = size_of(dx), .begin = begin, .length = length},
                               data(dx, type), data(gradient, type), On(dx).stream());
}

// ---- cross-entropy

at::Tensor cross_entropy(at::Tensor& logits, const at::Tensor& targets, double factor, const Slice& slice,
                         bool with_gradients) {
  at::Tensor losses = new_floats(logits, {logits.size(0)});
  cuda::cross_entropy(logits_of(logits, slice, targets), static_cast<float>(factor), with_gradients,
                      floats(losses), On(logits).stream());
  return losses;
}

at::Tensor row_maxima(const at::Tensor& logits, const Slice& slice) {
  at::Tensor maxima = new_floats(logits, {logits.size(0)});
  cuda::row_maxima(logits_of(logits, slice, {}), floats(maxima), On(logits).stream());
  return maxima;
}

at::Tensor exponential_sums(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const Slice& slice) {
  at::Tensor both = new_floats(logits, {2, logits.size(0)});
  cuda::exponential_sums(logits_of(logits, slice, targets), floats(maxima), floats(both),
                         floats(both) + logits.size(0), On(logits).stream());
  return both;
}

void cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const at::Tensor& sums, double factor, const Slice& slice) {
  cuda::cross_entropy_gradient(logits_of(logits, slice, targets), floats(maxima), floats(sums),
                               static_cast<float>(factor), On(logits).stream());
}

// ---- sums, optimizer

at::Tensor sum_of_squares(const at::Tensor& flat) {
  const cuda::Type type = type_of(flat);
  const at::Tensor sums = at::empty({cuda::square_sums}, flat.options().dtype(at::kDouble));
  cuda::sum_of_squares(type, flat.numel(), data(flat, type), sums.data_ptr<double>(), On(flat).stream());
  return sums[0];
}

void add(const at::Tensor& x, at::Tensor sum) {
  TUTTI_CHECK(x.numel() == sum.numel());
  const cuda::Type type = type_of(x);
  cuda::add(type, x.numel(), data(x, type), floats(sum), On(x).stream());
}

void adamw(const AdamStep& o, const at::Tensor& gradient, at::Tensor master, at::Tensor first,
           at::Tensor second, at::Tensor weight) {
  const auto steps = static_cast<double>(o.step);
  const bool apart = weight.data_ptr() != master.data_ptr();
  cuda::adamw({.learning_rate = static_cast<float>(o.learning_rate),
               .beta1 = static_cast<float>(o.beta1),
               .beta2 = static_cast<float>(o.beta2),
               .epsilon = static_cast<float>(o.epsilon),
               .decay = static_cast<float>(o.decay),
               .correction1 = static_cast<float>(1.0 - std::pow(o.beta1, steps)),
               .correction2 = static_cast<float>(1.0 - std::pow(o.beta2, steps)),
               .gradient_scale = static_cast<float>(o.gradient_scale)},
              {.count = gradient.numel(),
               .gradient_type = type_of(gradient),
               .gradient = data(gradient, type_of(gradient)),
               .master = floats(master),
               .first_moment = floats(first),
               .second_moment = floats(second),
               .weight_type = type_of(weight),
               .weight = apart ? data(weight, type_of(weight)) : nullptr},
              On(master).stream());
}

}  // namespace tutti::train::math::gpu
