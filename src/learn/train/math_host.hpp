// What math.hpp promises, for f32 tensors of the host: memory for the results, and the loops of kernels.hpp
// on it. Tensors from elsewhere are a Failure. math.cpp calls it and nobody else does. Stateless.
#pragma once

#include "learn/train/math.hpp"

namespace tutti::train::math::host {

// Hosts can.
Result<> check_device(at::Device device);
// The host is never behind.
void finish(at::Device device);
// Not known.
double peak_bf16_operations(at::Device device);

void bias_backward(const at::Tensor& dy, at::Tensor gradient);

Norm norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
          double epsilon);
at::Tensor norm_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& weight,
                         const at::Tensor& added, at::Tensor weight_gradient, at::Tensor bias_gradient);

at::Tensor gelu(const at::Tensor& x);
at::Tensor gelu_backward(const at::Tensor& x, at::Tensor dy, at::Tensor bias_gradient);
at::Tensor swiglu(const at::Tensor& x);
at::Tensor swiglu_backward(const at::Tensor& x, const at::Tensor& dy);

Attended attention(at::Tensor& qkv, const Heads& heads, const at::Tensor& angles);
at::Tensor attention_backward(const at::Tensor& qkv, const Attended& attended, const at::Tensor& dout,
                              const Heads& heads, const at::Tensor& angles, at::Tensor bias_gradient);

at::Tensor embed(const at::Tensor& tokens, const at::Tensor& table, std::int64_t first);
void embed_backward(const at::Tensor& tokens, const at::Tensor& dout, std::int64_t first,
                    at::Tensor gradient);
void add_positions(at::Tensor& x, const at::Tensor& table, std::int64_t begin, std::int64_t length);
void add_positions_backward(const at::Tensor& dx, std::int64_t begin, std::int64_t length,
                            at::Tensor gradient);

at::Tensor cross_entropy(at::Tensor& logits, const at::Tensor& targets, double factor, const Slice& slice,
                         bool with_gradients);
at::Tensor row_maxima(const at::Tensor& logits, const Slice& slice);
at::Tensor exponential_sums(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const Slice& slice);
void cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const at::Tensor& sums, double factor, const Slice& slice);

at::Tensor sum_of_squares(const at::Tensor& flat);
void add(const at::Tensor& x, at::Tensor sum);
void adamw(const AdamStep& options, const at::Tensor& gradient, at::Tensor master, at::Tensor first,
           at::Tensor second, at::Tensor weight);

}  // namespace tutti::train::math::host
