// A decoder transformer on paper: its sizes, the tensors it is made of, and what Hugging Face calls them. No
// tensor library: the planner, the checkpoints and the trainer all read it. Values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "learn/model/rope.hpp"

namespace tutti::model {

// What a transformer is made of, feature by feature. A family of models (config.json's model_type) is a set
// of them.
enum class Norm {
  layer,  // with a bias
  rms,
};
enum class Activation { gelu, gelu_tanh, silu };

// A mixture: each token goes to `chosen` of `count` feed-forward parts, by the largest of a router's numbers.
struct Experts {
  std::int64_t count = 0;  // 0: one feed-forward part for all
  std::int64_t chosen = 0;
  std::int64_t intermediate = 0;           // of each
  bool normalized = true;                  // the weights of the chosen ones add up to 1
  std::int64_t every = 1;                  // such layers: each n-th, counted from the end of the first n
  std::vector<std::int64_t> dense_layers;  // that have one part all the same

  friend bool operator==(const Experts&, const Experts&) = default;
};

struct Shape {
  std::string model_type =
      "gpt2";  // as config.json has it: the names of tensors and keys follow from it, no more
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   // = heads unless queries share keys and values
  std::int64_t head_size = 0;  // hidden / heads in most models
  std::int64_t intermediate = 0;
  std::int64_t context = 0;  // the longest sequence
  Norm norm = Norm::layer;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::gelu_tanh;
  bool gated = false;              // the feed-forward part multiplies by a second matrix
  bool learned_positions = false;  // else rotary ones
  Rope rope;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention
  bool mlp_bias = false;
  bool qk_norm = false;     // an RMS norm over each head of queries and keys, before they turn
  std::int64_t window = 0;  // each token sees so many positions, itself among them; 0: all
  Experts experts;
  bool tied = true;  // the head is the embedding

  bool has_experts(std::int64_t layer) const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

// The families that are known, as config.json calls them.
const std::vector<std::string_view>& model_types();
// A family's features, without a size; what it is not known by is refused by name.
Result<Shape> family_of(std::string_view model_type);

// What a family does not say.
struct Sizes {
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   // 0: as many as heads
  std::int64_t head_size = 0;  // 0: hidden / heads
  std::int64_t intermediate = 0;
  std::int64_t context = 0;
};
// A model of a family that is known, not yet checked.
Shape make_shape(std::string_view model_type, const Sizes& sizes);

// A config.json of Hugging Face, and back. What it asks for is computed, or refused by name.
Result<Shape> parse_config(std::string_view json);
std::string config_json(const Shape& shape);

// What is another in a model whose tensors were trained as `then`: "layers are 2 there and 4 here"; "" if
// such tensors can be gone on with.
std::string difference(const Shape& then, const Shape& now);

// Whether such a model can be: sizes that divide, within bounds, few enough to be listed.
Result<> check(const Shape& shape);

// How tensor parallelism cuts a tensor. The vocabulary is padded until it divides.
enum class Split { whole, rows, columns, vocabulary };

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;  // {out, in} of a matrix
  Split split = Split::whole;
  bool decays = false;         // weight decay is for matrices
  double deviation = 0;        // of the normal distribution it starts from; 0: zeros
  bool starts_at_one = false;  // the scale of a norm

  std::int64_t elements() const;
};

// What is computed, gathered and reduced as one: the embedding, each block, the head.
struct Unit {
  enum class Kind { embedding, block, head };
  Kind kind = Kind::block;
  std::int64_t layer = 0;  // of a block
  std::vector<Tensor> tensors;
};

// In the order of the forward pass. A tied head has no matrix of its own here.
std::vector<Unit> units(const Shape& shape);
std::int64_t parameters(const Shape& shape);
// Forward and backward, as the field counts them: 6 a parameter that a token meets, and attention over the
// whole context.
double operations_per_token(const Shape& shape, std::int64_t length);

// A tensor of a Hugging Face checkpoint: ours, one below the other, transposed where theirs is {in, out}.
struct ForeignTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::string> parts;  // names of ours
  bool transposed = false;
};
std::vector<ForeignTensor> foreign_tensors(const Shape& shape);

}  // namespace tutti::model
