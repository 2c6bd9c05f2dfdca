// The arithmetic between the matrix products, on f32 in host memory. Each pass over memory does all that can
// be done in it. The sums of a call are added in an order that does not depend on the number of threads: same
// input, same bits. Stateless; any thread.
//
// A matrix is rows × columns, row after row. "Adds" means that the result is added to what is there.
#pragma once

#include <cstdint>

namespace tutti::train::kernels {

struct Size {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// ---- norms

// sum = x + added (nowhere if sum is null; added may be null), out = norm(sum). LayerNorm has a bias and
// keeps mean and 1/deviation of each row; RMSNorm has neither bias nor mean (both null).
struct NormForward {
  const float* x;
  const float* added;
  const float* weight;
  const float* bias;
  float epsilon;
  float* sum;
  float* out;
  float* mean;
  float* scale;
};
void norm_forward(Size size, const NormForward& norm);

// dx = gradient through the norm + `added` (null: nothing). Adds to weight_gradient and bias_gradient.
struct NormBackward {
  const float* dy;
  const float* x;
  const float* weight;
  const float* mean;
  const float* scale;
  const float* added;
  float* dx;
  float* weight_gradient;
  float* bias_gradient;
};
void norm_backward(Size size, const NormBackward& norm);

// ---- activations

void gelu_forward(std::int64_t count, const float* x, float* y);
// dx may be dy.
void gelu_backward(std::int64_t count, const float* x, const float* dy, float* dx);

// x has rows of gate then up, `columns` each: y = silu(gate) · up.
void swiglu_forward(Size size, const float* x, float* y);
void swiglu_backward(Size size, const float* x, const float* dy, float* dx);

// ---- positions and tokens

// Turns each head's halves against each other by the angle of the row's position, in place; `inverse` turns
// back. A row has `stride` elements, of which the first heads × head_size are turned. Row r stands at
// position r % length, and angles has cosine then sine for each position, head_size / 2 each.
struct Rotation {
  std::int64_t rows;
  std::int64_t stride;
  std::int64_t heads;
  std::int64_t head_size;
  std::int64_t length;
  const float* angles;
  bool inverse;
};
void rotate(const Rotation& rotation, float* x);

// out row r = table[tokens[r] − first] where that lies inside the table, else zeros.
void embed(Size size, const std::int64_t* tokens, std::int64_t first, std::int64_t entries,
           const float* table, float* out);
// Adds each row to its entry of the table's gradient.
void embed_backward(Size size, const std::int64_t* tokens, std::int64_t first, std::int64_t entries,
                    const float* dout, float* table_gradient);
// x row r += table row (begin + r) % length.
void add_positions(Size size, std::int64_t begin, std::int64_t length, const float* table, float* x);
void add_positions_backward(Size size, std::int64_t begin, std::int64_t length, const float* dx,
                            float* table_gradient);

// ---- attention: causal, softmax(q kᵀ · scale) v, over a window where there is one

// A row of qkv has the queries of all heads, then the keys, then the values of all key-value heads.
struct Attention {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_size;
  std::int64_t window;  // positions that each sees, itself among them; 0: all before it

  // The first position that one of this and later rows sees.
  std::int64_t first_seen(std::int64_t row) const {
    return window > 0 && row >= window ? row - window + 1 : 0;
  }
  std::int64_t width() const { return (heads + 2 * kv_heads) * head_size; }
};
// probabilities: batch × heads × length × length, kept for the backward pass; what lies far outside of the
// window is not written.
void attention_forward(const Attention& shape, const float* qkv, float* out, float* probabilities);
void attention_backward(const Attention& shape, const float* qkv, const float* probabilities,
                        const float* dout, float* dqkv);

// ---- cross-entropy over a vocabulary that may be cut into slices

// The rows' largest logits, over the first `valid` columns.
void row_maxima(Size size, std::int64_t valid, const float* logits, float* maxima);
// logits = exp(logits − maxima) in place, zero beyond `valid`; sums of the rows; and the target's logit minus
// the maximum where the target is in this slice, else 0.
void exponentials(Size size, std::int64_t valid, const std::int64_t* targets, std::int64_t first,
                  const float* maxima, float* logits, float* sums, float* target_logits);
// From exponentials to gradients of the loss, in place: (probability − [is target]) · factor.
void cross_entropy_gradient(Size size, std::int64_t valid, const std::int64_t* targets, std::int64_t first,
                            const float* sums, float factor, float* logits);

// ---- sums, optimizer

// Adds the sums of the columns.
void column_sums(Size size, const float* x, float* sums);
double sum_of_squares(std::int64_t count, const float* x);
void add(std::int64_t count, const float* x, float* y);

struct AdamW {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float decay;
  float correction1;     // 1 − beta1^step
  float correction2;     // 1 − beta2^step
  float gradient_scale;  // what clipping leaves
};
void adamw(std::int64_t count, const AdamW& options, const float* gradient, float* weight,
           float* first_moment, float* second_moment);

}  // namespace tutti::train::kernels
