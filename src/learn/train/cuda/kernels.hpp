// The arithmetic between the matrix products, on a GPU: what ../kernels.hpp is for the host, with values of
// f32 or bf16 and every sum in f32. A call only launches; kernels of one stream run in the order of their
// launches. Each sum is taken in pieces that depend on the sizes alone, and nothing is added by atomics: same
// input, same bits. Plain CUDA, no torch. Throws std::runtime_error where a launch is refused. Any thread.
//
// A matrix is rows × columns, row after row. "Adds" means that the result is added to what is there. A
// pointer to void has elements of the call's type.
#pragma once

#include <cstdint>

namespace tutti::train::cuda {

enum class Type { f32, bf16 };

using Stream = void*;  // a cudaStream_t

struct Size {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// ---- norms

// A row is held in the registers of one block.
constexpr std::int64_t norm_columns_max = 16'384;

// sum = x + added (nowhere if sum is null; added may be null), out = norm(sum). LayerNorm has a bias and
// keeps mean and 1/deviation of each row; RMSNorm has neither bias nor mean (both null).
struct NormForward {
  Type type;
  Size size;
  float epsilon;
  const void* x;
  const void* added;
  const void* weight;
  const void* bias;
  void* sum;
  void* out;
  float* mean;
  float* scale;
};
void norm_forward(const NormForward& norm, Stream stream);

// dx = gradient through the norm + `added` (null: nothing). Adds to weight_gradient and bias_gradient.
struct NormBackward {
  Type type;
  Size size;
  const void* dy;
  const void* x;
  const void* weight;
  const float* mean;
  const float* scale;
  const void* added;
  void* dx;
  void* weight_gradient;
  void* bias_gradient;
  float* scratch;  // norm_scratch(size) elements
};
std::int64_t norm_scratch(Size size);
void norm_backward(const NormBackward& norm, Stream stream);

// ---- activations

void gelu_forward(Type type, std::int64_t count, const void* x, void* y, Stream stream);

// x has rows of gate then up, `columns` each: y = silu(gate) · up.
void swiglu_forward(Type type, Size size, const void* x, void* y, Stream stream);
void swiglu_backward(Type type, Size size, const void* x, const void* dy, void* dx, Stream stream);

// ---- sums of columns, taken in passing

// What these need as scratch, in floats.
std::int64_t column_scratch(Size size);

// Adds the sums of the columns.
void column_sums(Type type, Size size, const void* x, void* sums, float* scratch, Stream stream);

// dx may be dy. Adds the sums of dx to the gradient of the bias.
struct GeluBackward {
  Type type;
  Size size;
  const void* x;
  const void* dy;
  void* dx;
  void* bias_gradient;
  float* scratch;
};
void gelu_backward(const GeluBackward& gelu, Stream stream);

// Rows of q, rows of k and rows of v become rows of qkv. Adds the sums of its columns to the gradient of the
// bias.
struct Joining {
  Type type;
  std::int64_t rows;
  std::int64_t q_columns;
  std::int64_t kv_columns;
  const void* q;
  const void* k;
  const void* v;
  void* qkv;
  void* bias_gradient;
  float* scratch;
};
void join(const Joining& joining, Stream stream);

// ---- positions and tokens

// Turns each head's halves against each other by the angle of the row's position, and back if `inverse`. Row
// r stands at position r % length; angles has cosine then sine for each position, head_size / 2 each.
// Queries, keys and values come from wherever they are and go to rows of all three; values pass as they are.
struct Rotation {
  Type type;
  std::int64_t rows;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_size;
  const float* angles;  // null: nothing is turned
  bool inverse;
  const void* q;
  const void* k;
  const void* v;          // null: values stay where they are
  std::int64_t q_stride;  // elements from one row to the next
  std::int64_t kv_stride;
  void* qkv;
};
void rotate(const Rotation& rotation, Stream stream);

// out row r = table[tokens[r] − first] where that lies inside the table, else zeros.
struct Embedding {
  Type type;
  Size size;
  const std::int64_t* tokens;
  std::int64_t first;
  std::int64_t entries;
};
void embed(const Embedding& embedding, const void* table, void* out, Stream stream);
// Adds each row to its entry of the table's gradient. Here tokens are sorted, and `order` says which row each
// of them belongs to.
void embed_backward(const Embedding& embedding, const std::int64_t* order, const void* dout,
                    void* table_gradient, Stream stream);

// x row r += table row (begin + r) % length.
struct Positions {
  Type type;
  Size size;
  std::int64_t begin;
  std::int64_t length;
};
void add_positions(const Positions& positions, const void* table, void* x, Stream stream);
void add_positions_backward(const Positions& positions, const void* dx, void* table_gradient, Stream stream);

// ---- cross-entropy over a vocabulary that may be cut into slices

// Rows of logits, of which the first `valid` columns are the vocabulary's from `first` on.
struct Logits {
  Type type;
  Size size;
  std::int64_t valid;
  std::int64_t first;
  const std::int64_t* targets;
  void* logits;
};
void row_maxima(const Logits& logits, float* maxima, Stream stream);
// Sums of exp(logit − maximum), and the target's logit minus the maximum where the target is in this slice,
// else 0.
void exponential_sums(const Logits& logits, const float* maxima, float* sums, float* target_logits,
                      Stream stream);
// From logits to gradients of the loss, in place: (probability − [is target]) · factor, zero beyond `valid`.
void cross_entropy_gradient(const Logits& logits, const float* maxima, const float* sums, float factor,
                            Stream stream);
// All of it in one go, where the slice is the whole vocabulary.
void cross_entropy(const Logits& logits, float factor, bool with_gradients, float* losses, Stream stream);

// ---- sums, optimizer

// The first element of `sums` is the result, the others are scratch.
constexpr std::int64_t square_sums = 513;
void sum_of_squares(Type type, std::int64_t count, const void* x, double* sums, Stream stream);

// sum += x
void add(Type type, std::int64_t count, const void* x, float* sum, Stream stream);

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
struct AdamWState {
  std::int64_t count;
  Type gradient_type;
  const void* gradient;
  float* master;
  float* first_moment;
  float* second_moment;
  Type weight_type;
  void* weight;  // the master in another type, or null
};
void adamw(const AdamW& options, const AdamWState& state, Stream stream);

}  // namespace tutti::train::cuda
