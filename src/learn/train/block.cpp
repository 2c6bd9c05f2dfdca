#include "learn/train/block.hpp"

#include <ATen/ATen.h>

namespace tutti::train {

Setup Setup::make(const model::Shape& shape, const Groups& groups, std::int64_t batch, std::int64_t length,
                  at::Device device) {
  Setup setup{.shape = shape, .batch = batch, .length = length};
  setup.heads = {.batch = batch,
                 .length = length,
                 .queries = shape.heads / groups.mesh.tensor,
                 .keys = shape.kv_heads / groups.mesh.tensor,
                 .size = shape.head_size()};
  if (shape.family == model::Family::llama) {
    setup.angles = math::rotary_angles(length, model::frequencies(shape.rope, shape.head_size()), device);
  }
  return setup;
}

at::Tensor Stream::sum() const { return added.defined() ? at::add(x, added) : x; }

Block::Block(const Setup& setup, Storage& storage, Group& tensor, const model::Unit& unit)
    : setup_(setup), storage_(storage), tensor_(tensor), gpt2_(setup.shape.family == model::Family::gpt2) {
  const std::string layer = std::to_string(unit.layer) + ".";
  const auto view = [&](std::vector<std::string> names) {
    for (std::string& name : names) name = (gpt2_ ? "h." : "model.layers.") + layer + name;
    return storage.view(names);
  };
  if (gpt2_) {
    norm1_ = view({"ln_1.weight"});
    norm1_bias_ = view({"ln_1.bias"});
    qkv_ = view({"attn.q.weight", "attn.k.weight", "attn.v.weight"});
    qkv_bias_ = view({"attn.q.bias", "attn.k.bias", "attn.v.bias"});
    projection_ = view({"attn.c_proj.weight"});
    projection_bias_ = view({"attn.c_proj.bias"});
    norm2_ = view({"ln_2.weight"});
    norm2_bias_ = view({"ln_2.bias"});
    up_ = view({"mlp.c_fc.weight"});
    up_bias_ = view({"mlp.c_fc.bias"});
    down_ = view({"mlp.c_proj.weight"});
    down_bias_ = view({"mlp.c_proj.bias"});
  } else {
    norm1_ = view({"input_layernorm.weight"});
    qkv_ = view({"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"});
    projection_ = view({"self_attn.o_proj.weight"});
    norm2_ = view({"post_attention_layernorm.weight"});
    up_ = view({"mlp.gate_proj.weight", "mlp.up_proj.weight"});
    down_ = view({"mlp.down_proj.weight"});
  }
}

// A matrix cut by columns: each slice has a summand of the result, which is then cut by rows.
at::Tensor Block::row_linear(const at::Tensor& x, const View& weight, const View* bias) {
  if (tensor_.size() == 1) return math::linear(x, storage_.weight(weight), this->weight(bias));
  at::Tensor rows = tensor_.scatter_rows(math::linear(x, storage_.weight(weight)));
  if (bias != nullptr) rows.add_(storage_.weight(*bias));
  return rows;
}

Stream Block::compute(const Stream& stream, Tape& tape) {
  const double epsilon = setup_.shape.norm_epsilon;
  const auto bias = [&](const View& view) { return gpt2_ ? &view : nullptr; };
  tape.norm1 =
      math::norm(stream.x, stream.added, storage_.weight(norm1_), weight(bias(norm1_bias_)), epsilon);
  tape.attention_input = tensor_.gather_rows(tape.norm1.out);
  tape.qkv = math::linear(tape.attention_input, storage_.weight(qkv_), weight(bias(qkv_bias_)));
  tape.attended = math::attention(tape.qkv, setup_.heads, setup_.angles);
  const at::Tensor attention_out = row_linear(tape.attended.out, projection_, bias(projection_bias_));

  tape.norm2 =
      math::norm(tape.norm1.sum, attention_out, storage_.weight(norm2_), weight(bias(norm2_bias_)), epsilon);
  tape.mlp_input = tensor_.gather_rows(tape.norm2.out);
  tape.hidden = math::linear(tape.mlp_input, storage_.weight(up_), weight(bias(up_bias_)));
  tape.activated = gpt2_ ? math::gelu(tape.hidden) : math::swiglu(tape.hidden);
  return {tape.norm2.sum, row_linear(tape.activated, down_, bias(down_bias_))};
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
                                     const View* bias, const at::Tensor& added) {
  return math::norm_backward(norm, dy, storage_.weight(weight), added, storage_.gradient(weight),
                             bias == nullptr ? at::Tensor() : storage_.gradient(*bias));
}

// From the gradient of what the MLP adds, rows of this slice, to that of its normed input.
at::Tensor Block::mlp_backward(const at::Tensor& dy, const Tape& tape) {
  if (gpt2_) math::bias_backward(dy, storage_.gradient(down_bias_));
  const at::Tensor all = tensor_.gather_rows(dy);
  at::Tensor dactivated = math::linear_backward(all, storage_.weight(down_));
  storage_.add_product(down_, all, tape.activated);
  const at::Tensor dhidden =
      gpt2_ ? math::gelu_backward(tape.hidden, std::move(dactivated), storage_.gradient(up_bias_))
            : math::swiglu_backward(tape.hidden, dactivated);
  storage_.add_product(up_, dhidden, tape.mlp_input);
  return tensor_.scatter_rows(math::linear_backward(dhidden, storage_.weight(up_)));
}

at::Tensor Block::attention_part_backward(const at::Tensor& dy, const Tape& tape) {
  if (gpt2_) math::bias_backward(dy, storage_.gradient(projection_bias_));
  const at::Tensor all = tensor_.gather_rows(dy);
  const at::Tensor dattended = math::linear_backward(all, storage_.weight(projection_));
  storage_.add_product(projection_, all, tape.attended.out);
  const at::Tensor dqkv =
      math::attention_backward(tape.qkv, tape.attended, dattended, setup_.heads, setup_.angles,
                               gpt2_ ? storage_.gradient(qkv_bias_) : at::Tensor());
  storage_.add_product(qkv_, dqkv, tape.attention_input);
  return tensor_.scatter_rows(math::linear_backward(dqkv, storage_.weight(qkv_)));
}

at::Tensor Block::backward(const at::Tensor& dy, Tape& tape) {
  storage_.open();
  if (tape.input.defined()) compute({tape.input, {}}, tape);
  const at::Tensor dmlp = mlp_backward(dy, tape);
  const at::Tensor dmiddle = norm_part_backward(tape.norm2, dmlp, norm2_, gpt2_ ? &norm2_bias_ : nullptr, dy);
  const at::Tensor dattention = attention_part_backward(dmiddle, tape);
  at::Tensor dx = norm_part_backward(tape.norm1, dattention, norm1_, gpt2_ ? &norm1_bias_ : nullptr, dmiddle);
  tape = {};
  storage_.close();
  return dx;
}

}  // namespace tutti::train
