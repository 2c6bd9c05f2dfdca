#include <algorithm>
#include <cmath>

#include "learn/model/names.hpp"
#include "learn/model/shape.hpp"

namespace tutti::model {
namespace {

constexpr double initial_deviation = 0.02;

Tensor matrix(const std::string& part, std::int64_t out, std::int64_t in, Split split,
              double deviation = initial_deviation) {
  return {
      .name = weight_of(part), .shape = {out, in}, .split = split, .decays = true, .deviation = deviation};
}
Tensor bias(const std::string& part, std::int64_t size, Split split = Split::whole) {
  return {.name = bias_of(part), .shape = {size}, .split = split};
}

// The tensors of a unit in their order, which is that of the flat memory of a training: matrices and biases
// that are computed as one stand side by side.
class Tensors {
 public:
  explicit Tensors(const Shape& shape)
      : shape_(shape),
        residual_deviation_(initial_deviation / std::sqrt(2.0 * static_cast<double>(shape.layers))) {}

  void add(Tensor tensor) { all_.push_back(std::move(tensor)); }

  void norm(const std::string& part) {
    scale(part, shape_.hidden);
    if (shape_.norm == Norm::layer) add(bias(part, shape_.hidden));
  }

  void attention(const LayerNames& names) {
    const std::int64_t queries = shape_.heads * shape_.head_size;
    const std::int64_t keys = shape_.kv_heads * shape_.head_size;
    add(matrix(names.queries, queries, shape_.hidden, Split::rows));
    add(matrix(names.keys, keys, shape_.hidden, Split::rows));
    add(matrix(names.values, keys, shape_.hidden, Split::rows));
    if (shape_.qkv_bias) {
      add(bias(names.queries, queries, Split::rows));
      add(bias(names.keys, keys, Split::rows));
      add(bias(names.values, keys, Split::rows));
    }
    if (shape_.qk_norm) {
      scale(names.query_norm, shape_.head_size);
      scale(names.key_norm, shape_.head_size);
    }
    add(matrix(names.output, shape_.hidden, queries, Split::columns, residual_deviation_));
    if (shape_.output_bias) add(bias(names.output, shape_.hidden));
  }

  void feed_forward(const FeedForwardNames& names, std::int64_t width) {
    if (shape_.gated) add(matrix(names.gate, width, shape_.hidden, Split::rows));
    add(matrix(names.up, width, shape_.hidden, Split::rows));
    if (shape_.mlp_bias && shape_.gated) add(bias(names.gate, width, Split::rows));
    if (shape_.mlp_bias) add(bias(names.up, width, Split::rows));
    add(matrix(names.down, shape_.hidden, width, Split::columns, residual_deviation_));
    if (shape_.mlp_bias) add(bias(names.down, shape_.hidden));
  }

  std::vector<Tensor> take() { return std::move(all_); }

 private:
  void scale(const std::string& part, std::int64_t size) {
    add({.name = weight_of(part), .shape = {size}, .starts_at_one = true});
  }

  const Shape& shape_;
  double residual_deviation_;  // what adds to the stream starts smaller, the more layers add to it
  std::vector<Tensor> all_;
};

Unit embedding_of(const Shape& shape) {
  const Names names = names_of(shape);
  Tensors tensors(shape);
  tensors.add(matrix(names.embedding, shape.vocabulary, shape.hidden, Split::vocabulary));
  if (shape.learned_positions)
    tensors.add(matrix(names.positions, shape.context, shape.hidden, Split::whole));
  return {Unit::Kind::embedding, 0, tensors.take()};
}

Unit block_of(const Shape& shape, std::int64_t layer) {
  const LayerNames names = names_of_layer(shape, layer);
  Tensors tensors(shape);
  tensors.norm(names.attention_norm);
  tensors.attention(names);
  tensors.norm(names.feed_forward_norm);
  if (shape.has_experts(layer)) {
    tensors.add(matrix(names.router, shape.experts.count, shape.hidden, Split::whole));
    for (std::int64_t expert = 0; expert < shape.experts.count; ++expert)
      tensors.feed_forward(names_of_expert(shape, layer, expert), shape.experts.intermediate);
  } else {
    tensors.feed_forward(names.feed_forward, shape.intermediate);
  }
  return {Unit::Kind::block, layer, tensors.take()};
}

Unit head_of(const Shape& shape) {
  const Names names = names_of(shape);
  Tensors tensors(shape);
  tensors.norm(names.norm);
  if (!shape.tied) tensors.add(matrix(names.head, shape.vocabulary, shape.hidden, Split::vocabulary));
  return {Unit::Kind::head, 0, tensors.take()};
}

// gpt2 keeps the matrices of its layers as {in, out}, and queries, keys and values as one.
void add_foreign_of_gpt2(const Shape& shape, const Unit& unit, std::vector<ForeignTensor>& all) {
  const LayerNames names = names_of_layer(shape, unit.layer);
  for (const Tensor& tensor : unit.tensors) {
    const bool turned = unit.kind == Unit::Kind::block && tensor.shape.size() == 2;
    ForeignTensor theirs{tensor.name, tensor.shape, {tensor.name}, turned};
    const auto is = [&](const std::string& part) {
      return tensor.name == weight_of(part) || tensor.name == bias_of(part);
    };
    if (is(names.keys) || is(names.values)) continue;
    if (is(names.queries)) {
      const std::string ending = tensor.name.substr(names.queries.size());
      theirs.name = names.queries.substr(0, names.queries.size() - 1) + "c_attn" + ending;
      theirs.parts = {tensor.name, names.keys + ending, names.values + ending};
      theirs.shape.front() = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
    }
    if (turned) std::ranges::reverse(theirs.shape);
    all.push_back(std::move(theirs));
  }
}

}  // namespace

std::int64_t Tensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::vector<Unit> units(const Shape& shape) {
  std::vector<Unit> all;
  all.push_back(embedding_of(shape));
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) all.push_back(block_of(shape, layer));
  all.push_back(head_of(shape));
  return all;
}

std::int64_t parameters(const Shape& shape) {
  std::int64_t sum = 0;
  for (const Unit& unit : units(shape)) {
    for (const Tensor& tensor : unit.tensors) sum += tensor.elements();
  }
  return sum;
}

double operations_per_token(const Shape& shape, std::int64_t length) {
  Shape met = shape;
  met.experts.count = shape.experts.chosen;
  const auto width = static_cast<double>(shape.heads * shape.head_size * shape.layers);
  const std::int64_t seen = shape.window > 0 ? std::min(shape.window, length) : length;
  return 6.0 * static_cast<double>(parameters(met)) + 12.0 * width * static_cast<double>(seen);
}

std::vector<ForeignTensor> foreign_tensors(const Shape& shape) {
  std::vector<ForeignTensor> all;
  for (const Unit& unit : units(shape)) {
    if (shape.model_type == "gpt2") {
      add_foreign_of_gpt2(shape, unit, all);
      continue;
    }
    for (const Tensor& tensor : unit.tensors)
      all.push_back({tensor.name, tensor.shape, {tensor.name}, false});
  }
  return all;
}

}  // namespace tutti::model
