// One layer of the transformer: attention and MLP, each behind a norm, each added to the stream. Its matrices
// are cut along the tensor group; between them each rank has some of the rows (sequence parallel). One
// thread.
//
//   x ─┬─ norm ─ gather ─ q,k,v ─ attention ─ projection ─ scatter ─ + ─┬─ norm ─ gather ─ MLP ─ scatter ─ +
//   ─▶
//      └─────────────────────────────────────────────────────────────┘ └──────────────────────────────┘
#pragma once

#include <optional>

#include "learn/model/names.hpp"
#include "learn/train/group.hpp"
#include "learn/train/math.hpp"
#include "learn/train/parameters.hpp"

namespace tutti::train {

// What all layers of a rank share.
struct Setup {
  model::Shape shape;
  std::int64_t batch = 1;   // sequences of a microbatch
  std::int64_t length = 0;  // tokens of a sequence
  bool recompute = false;   // keep a block's input alone, and compute the rest again for the backward pass
  math::Heads heads;        // of this slice
  at::Tensor angles;        // of rotary positions

  static Setup make(const model::Shape& shape, const Groups& groups, std::int64_t batch, std::int64_t length,
                    at::Device device);
  std::int64_t rows() const { return batch * length; }
};

// The sum of the two, where the second is not added yet: the next norm does that in passing.
struct Stream {
  at::Tensor x;
  at::Tensor added;

  at::Tensor sum() const;
};

class Block {
 public:
  Block(const Setup& setup, Storage& storage, Group& tensor, const model::Unit& unit);

  // What the backward pass needs of the forward pass.
  struct Tape {
    at::Tensor input;  // alone, when the rest is computed again
    math::Norm norm1;
    at::Tensor attention_input;
    math::Norm query_norm;  // where queries and keys have norms
    math::Norm key_norm;
    at::Tensor qkv;
    math::Attended attended;
    math::Norm norm2;
    at::Tensor mlp_input;
    at::Tensor hidden;
    at::Tensor activated;
  };
  Stream forward(const Stream& stream, Tape& tape);
  at::Tensor backward(const at::Tensor& dy, Tape& tape);

  Storage& storage() { return storage_; }

 private:
  Stream compute(const Stream& stream, Tape& tape);
  at::Tensor row_linear(const at::Tensor& x, const View& weight, const std::optional<View>& bias);
  // Some heads of the rows of queries, keys and values.
  at::Tensor heads_of(const at::Tensor& qkv, std::int64_t first, std::int64_t count) const;
  math::Norm norm_heads(const at::Tensor& heads, const View& weight) const;
  void norm_heads_backward(const math::Norm& norm, const View& weight, at::Tensor dheads);
  at::Tensor mlp_backward(const at::Tensor& dy, const Tape& tape);
  at::Tensor attention_part_backward(const at::Tensor& dy, const Tape& tape);
  at::Tensor norm_part_backward(const math::Norm& norm, const at::Tensor& dy, const View& weight,
                                const std::optional<View>& bias, const at::Tensor& added);
  at::Tensor weight(const std::optional<View>& view) const {
    return view ? storage_.weight(*view) : at::Tensor();
  }
  at::Tensor gradient(const std::optional<View>& view) {
    return view ? storage_.gradient(*view) : at::Tensor();
  }

  const Setup& setup_;
  Storage& storage_;
  Group& tensor_;
  View norm1_, norm2_, qkv_, projection_, up_, down_;
  std::optional<View> norm1_bias_, norm2_bias_, qkv_bias_, projection_bias_, up_bias_, down_bias_;
  std::optional<View> query_norm_, key_norm_;
};

}  // namespace tutti::train
