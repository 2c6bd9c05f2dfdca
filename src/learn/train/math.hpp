// The arithmetic of a transformer on tensors: matrix products are libtorch's, what lies between them is ours
// (kernels.hpp for the host, cuda/kernels.hpp for GPUs). No gradient is recorded: every function has its
// backward function beside it. Stateless.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"

namespace tutti::train::math {

// Rows of a cut vocabulary are a multiple of this, so that matrix products run at full speed.
std::int64_t vocabulary_multiple(at::Device device);

// Whether it can be computed there at all.
Result<> check_device(at::Device device);

// Until all that was begun on the device is done; the host is never behind.
void finish(at::Device device);

// Operations a second that the maker promises for dense matrix products of this type; 0 if not known.
double peak_operations(at::Device device, at::ScalarType type);

// x wᵀ (+ bias)
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
// dy w
at::Tensor linear_backward(const at::Tensor& dy, const at::Tensor& weight);
// Adds the sums of the columns of dy.
void bias_backward(const at::Tensor& dy, at::Tensor gradient);

// LayerNorm with a bias, RMSNorm without.
struct Norm {
  at::Tensor sum;  // what was normalized: x, or x + added
  at::Tensor out;
  at::Tensor mean;
  at::Tensor scale;
};
Norm norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
          double epsilon);
// The gradient through the norm, plus `added`. Adds to the gradients of weight and bias.
at::Tensor norm_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& weight,
                         const at::Tensor& added, at::Tensor weight_gradient, at::Tensor bias_gradient);

at::Tensor gelu(const at::Tensor& x);
// The gradient of x, in the place of dy. Adds the sums of its columns to the gradient of x's bias.
at::Tensor gelu_backward(const at::Tensor& x, at::Tensor dy, at::Tensor bias_gradient);
at::Tensor swiglu(const at::Tensor& x);
at::Tensor swiglu_backward(const at::Tensor& x, const at::Tensor& dy);

// The hidden layer of an MLP after its activation. With a gate, a row of x has the gate and then what it
// multiplies.
at::Tensor activate(const at::Tensor& x, model::Activation activation, bool gated);
// The gradient of x; dy may be used up. Adds the sums of its columns to the gradient of x's bias (undefined:
// it has none).
at::Tensor activate_backward(const at::Tensor& x, at::Tensor dy, model::Activation activation, bool gated,
                             at::Tensor bias_gradient);

struct Heads {
  std::int64_t batch = 0;
  std::int64_t length = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t size = 0;
  std::int64_t window = 0;  // positions that each sees, itself among them; 0: all before it
};
// Cosines and sines of each position, times the factor: length × head size, which has two for each frequency.
at::Tensor rotary_angles(std::int64_t length, const std::vector<double>& frequencies, double factor,
                         at::Device device);

// What the backward pass needs besides qkv.
struct Attended {
  at::Tensor out;
  at::Tensor kept;           // the host: probabilities; a GPU: logarithms of their denominators
  at::Tensor random_seed;    // of the GPU's kernel, which wants them
  at::Tensor random_offset;  // even without dropout
};
// Causal attention. Queries and keys are first turned by the angles, in place; undefined angles turn nothing.
Attended attention(at::Tensor& qkv, const Heads& heads, const at::Tensor& angles);
// The gradient of qkv as it was before it was turned. Adds the sums of its columns to the gradient of its
// bias (undefined: it has none).
at::Tensor attention_backward(const at::Tensor& qkv, const Attended& attended, const at::Tensor& dout,
                              const Heads& heads, const at::Tensor& angles, at::Tensor bias_gradient);

at::Tensor embed(const at::Tensor& tokens, const at::Tensor& table, std::int64_t first);
void embed_backward(const at::Tensor& tokens, const at::Tensor& dout, std::int64_t first,
                    at::Tensor gradient);
// Row r of x stands at position (begin + r) % length.
void add_positions(at::Tensor& x, const at::Tensor& table, std::int64_t begin, std::int64_t length);
void add_positions_backward(const at::Tensor& dx, std::int64_t begin, std::int64_t length,
                            at::Tensor gradient);

// A cross-entropy whose vocabulary may be cut: this slice has `valid` entries from `first`.
struct Slice {
  std::int64_t first = 0;
  std::int64_t valid = 0;
};
// Where the slice is all of it. The losses of the rows; with gradients, logits turn into those of
// factor · loss.
at::Tensor cross_entropy(at::Tensor& logits, const at::Tensor& targets, double factor, const Slice& slice,
                         bool with_gradients);
// The same in three passes, between which the slices agree on maxima and sums.
at::Tensor row_maxima(const at::Tensor& logits, const Slice& slice);
// 2 × rows: the sums of exp(logit − maximum), and the target's logit minus the maximum. On the host the
// exponentials take the place of the logits.
at::Tensor exponential_sums(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const Slice& slice);
// Turns what the pass before has left into the gradient of factor · loss.
void cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& maxima,
                            const at::Tensor& sums, double factor, const Slice& slice);

at::Tensor sum_of_squares(const at::Tensor& flat);  // one f64
// sum += x, where the sum is f32.
void add(const at::Tensor& x, at::Tensor sum);

struct AdamStep {
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double decay;
  double gradient_scale;
  std::int64_t step;
};
// `weight` is the master in the type that is computed with; it may be the master itself.
void adamw(const AdamStep& options, const at::Tensor& gradient, at::Tensor master, at::Tensor first,
           at::Tensor second, at::Tensor weight);

}  // namespace tutti::train::math
