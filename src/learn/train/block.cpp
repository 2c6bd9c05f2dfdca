#include "learn/train/block.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>

namespace tutti::train {

Setup Setup::make(const model::Shape& shape, const Groups& groups, std::int64_t batch, std::int64_t length,
                  at::Device device) {
  Setup setup{.shape = shape, .batch = batch, .length = length};
  setup.heads = {.batch = batch,
                 .length = length,
                 .queries = shape.heads / groups.mesh.tensor,
                 .keys = shape.kv_heads / groups.mesh.tensor,
                 .size = shape.head_size,
                 .window = shape.window < length ? shape.window : 0};
  if (!shape.learned_positions) {
    setup.angles = math::rotary_angles(length, model::frequencies(shape.rope, shape.head_size),
                                       shape.rope.attention_factor, device);
  }
  return setup;
}

at::Tensor Stream::sum() const { return added.defined() ? at::add(x, added) : x; }

Block::Block(const Setup& setup, Storage& storage, Group& tensor, const model::Unit& unit)
    : setup_(setup), storage_(storage), tensor_(tensor) {
  const model::Shape& shape = setup.shape;
  const model::LayerNames names = model::names_of_layer(shape, unit.layer);
  using Parts = std::vector<std::string>;
  const auto weights = [&](Parts parts) {
    for (std::string& part : parts) part = model::weight_of(part);
    return storage.view(parts);
  };
  const auto biases = [&](bool there, Parts parts) -> std::optional<View> {
    if (!there) return std::nullopt;
    for (std::string& part : parts) part = model::bias_of(part);
    return storage.view(parts);
  };
  const Parts qkv{names.queries, names.keys, names.values};
  const Parts up =
      shape.gated ? Parts{names.feed_forward.gate, names.feed_forward.up} : Parts{names.feed_forward.up};
  const bool norm_bias = shape.norm == model::Norm::layer;
  norm1_ = weights({names.attention_norm});
  norm1_bias_ = biases(norm_bias, {names.attention_norm});
  qkv_ = weights(qkv);
  qkv_bias_ = biases(shape.qkv_bias, qkv);
  if (shape.qk_norm) {
    query_norm_ = weights({names.query_norm});
    key_norm_ = weights({names.key_norm});
  }
  projection_ = weights({names.output});
  projection_bias_ = biases(shape.output_bias, {names.output});
  norm2_ = weights({names.feed_forward_norm});
  norm2_bias_ = biases(norm_bias, {names.feed_forward_norm});
  if (shape.has_experts(unit.layer)) {
    experts_.emplace(shape, storage, unit.layer);
    return;
  }
  up_ = weights(up);
  up_bias_ = biases(shape.mlp_bias, up);
  down_ = weights({names.feed_forward.down});
  down_bias_ = biases(shape.mlp_bias, {names.feed_forward.down});
}

// A matrix cut by columns: each slice has a summand of the result, which is then cut by rows.
at::Tensor Block::row_linear(const at::Tensor& x, const View& weight, const std::optional<View>& bias) {
  if (tensor_.size() == 1) return math::linear(x, storage_.weight(weight), this->weight(bias));
  at::Tensor rows = tensor_.scatter_rows(math::linear(x, storage_.weight(weight)));
  if (bias) rows.add_(storage_.weight(*bias));
  return rows;
}

at::Tensor Block::heads_of(const at::Tensor& qkv, std::int64_t first, std::int64_t count) const {
  const std::int64_t size = setup_.heads.size;
  return qkv.slice(1, first * size, (first + count) * size);
}

// Each head is a row of its own, and takes the place of what it was.
math::Norm Block::norm_heads(const at::Tensor& heads, const View& weight) const {
  math::Norm norm = math::norm(heads.contiguous().view({-1, setup_.heads.size}), {}, storage_.weight(weight),
                               {}, setup_.shape.norm_epsilon);
  heads.copy_(norm.out.view(heads.sizes()));
  norm.out.reset();
  return norm;
}

void Block::norm_heads_backward(const math::Norm& norm, const View& weight, at::Tensor dheads) {
  const at::Tensor dx = math::norm_backward(norm, dheads.contiguous().view({-1, setup_.heads.size}),
                                            storage_.weight(weight), {}, storage_.gradient(weight), {});
  dheads.copy_(dx.view(dheads.sizes()));
}

Stream Block::compute(const Stream& stream, Tape& tape) {
  const model::Shape& shape = setup_.shape;
  const math::Heads& heads = setup_.heads;
  tape.norm1 =
      math::norm(stream.x, stream.added, storage_.weight(norm1_), weight(norm1_bias_), shape.norm_epsilon);
  tape.attention_input = tensor_.gather_rows(tape.norm1.out);
  tape.qkv = math::linear(tape.attention_input, storage_.weight(qkv_), weight(qkv_bias_));
  if (query_norm_) tape.query_norm = norm_heads(heads_of(tape.qkv, 0, heads.queries), *query_norm_);
  if (key_norm_) tape.key_norm = norm_heads(heads_of(tape.qkv, heads.queries, heads.keys), *key_norm_);
  tape.attended = math::attention(tape.qkv, heads, setup_.angles);
  const at::Tensor attention_out = row_linear(tape.attended.out, projection_, projection_bias_);

  tape.norm2 = math::norm(tape.norm1.sum, attention_out, storage_.weight(norm2_), weight(norm2_bias_),
                          shape.norm_epsilon);
  tape.mlp_input = tensor_.gather_rows(tape.norm2.out);
  return {tape.norm2.sum, mlp_forward(tape)};
}

at::Tensor Block::mlp_forward(Tape& tape) {
  if (experts_) return tensor_.scatter_rows(experts_->forward(tape.mlp_input, tape.experts));
  tape.hidden = math::linear(tape.mlp_input, storage_.weight(up_), weight(up_bias_));
  tape.activated = math::activate(tape.hidden, setup_.shape.activation, setup_.shape.gated);
  return row_linear(tape.activated, down_, down_bias_);
}

Stream Block::forward(const Stream& stream, Tape& tape) {
  storage_.open();
  Stream result;
  if (setup_.recompute) {
    Tape passing;
    result = compute(stream, passing);
    tape.input = passing.norm1.sum;
  } else {
    result = compute(stream, tape);
  }
  storage_.close();
  return result;
}

at::Tensor Block::norm_part_backward(const math::Norm& norm, const at::Tensor& dy, const View& weight,
                                     const std::optional<View>& bias, const at::Tensor& added) {
  return math::norm_backward(norm, dy, storage_.weight(weight), added, storage_.gradient(weight),
                             gradient(bias));
}

// From the gradient of what the MLP adds, rows of this slice, to that of its normed input.
at::Tensor Block::mlp_backward(const at::Tensor& dy, const Tape& tape) {
  const model::Shape& shape = setup_.shape;
  if (experts_)
    return tensor_.scatter_rows(experts_->backward(tensor_.gather_rows(dy), tape.mlp_input, tape.experts));
  if (down_bias_) math::bias_backward(dy, storage_.gradient(*down_bias_));
  const at::Tensor all = tensor_.gather_rows(dy);
  at::Tensor dactivated = math::linear_backward(all, storage_.weight(down_));
  storage_.add_product(down_, all, tape.activated);
  const at::Tensor dhidden = math::activate_backward(tape.hidden, std::move(dactivated), shape.activation,
                                                     shape.gated, gradient(up_bias_));
  storage_.add_product(up_, dhidden, tape.mlp_input);
  return tensor_.scatter_rows(math::linear_backward(dhidden, storage_.weight(up_)));
}

at::Tensor Block::attention_part_backward(const at::Tensor& dy, const Tape& tape) {
  const math::Heads& heads = setup_.heads;
  if (projection_bias_) math::bias_backward(dy, storage_.gradient(*projection_bias_));
  const at::Tensor all = tensor_.gather_rows(dy);
  const at::Tensor dattended = math::linear_backward(all, storage_.weight(projection_));
  storage_.add_product(projection_, all, tape.attended.out);
  // The bias stands before the norms of the heads, where there are some.
  const bool normed = query_norm_ || key_norm_;
  const at::Tensor dqkv = math::attention_backward(tape.qkv, tape.attended, dattended, heads, setup_.angles,
                                                   normed ? at::Tensor() : gradient(qkv_bias_));
  if (query_norm_) norm_heads_backward(tape.query_norm, *query_norm_, heads_of(dqkv, 0, heads.queries));
  if (key_norm_) norm_heads_backward(tape.key_norm, *key_norm_, heads_of(dqkv, heads.queries, heads.keys));
  if (normed && qkv_bias_) math::bias_backward(dqkv, storage_.gradient(*qkv_bias_));
  storage_.add_product(qkv_, dqkv, tape.attention_input);
  return tensor_.scatter_rows(math::linear_backward(dqkv, storage_.weight(qkv_)));
}

at::Tensor Block::backward(const at::Tensor& dy, Tape& tape) {
  storage_.open();
  if (tape.input.defined()) compute({tape.input, {}}, tape);
  const at::Tensor dmlp = mlp_backward(dy, tape);
  const at::Tensor dmiddle = norm_part_backward(tape.norm2, dmlp, norm2_, norm2_bias_, dy);
  const at::Tensor dattention = attention_part_backward(dmiddle, tape);
  at::Tensor dx = norm_part_backward(tape.norm1, dattention, norm1_, norm1_bias_, dmiddle);
  tape = {};
  storage_.close();
  return dx;
}

}  // namespace tutti::train
