#include "serve/cuda/weights.hpp"

#include <algorithm>

#include "learn/model/names.hpp"
#include "serve/cuda/sizes.hpp"

namespace tutti::serve::cuda {
namespace {

// Elements that one thread reads and copies at a time.
constexpr std::int64_t piece_elements = std::int64_t{1} << 20;

void* behind(void* data, std::int64_t elements, Type type) {
  return data == nullptr
             ? nullptr
             : static_cast<std::byte*>(data) + static_cast<std::size_t>(elements) * bytes_of(type);
}

}  // namespace

WeightLayout::WeightLayout(const model::Shape& shape, Type type, Arena arena, const Part& part, bool is_fp8)
    : shape_(shape), type_(type), is_fp8_(is_fp8), arena_(arena) {
  const model::Names names = model::names_of(shape_);
  const auto looked_up = [&](const std::string& name, std::int64_t rows, std::int64_t padded_rows) {
    return matrix({model::weight_of(name)}, rows, padded_rows, shape_.hidden, false);
  };
  // The ranks' heads are as wide, and rows of the embedding where the two are one.
  const HeadRows head = head_of_part(shape_.vocabulary, part, row_elements);
  weights_.embedding = looked_up(names.embedding, shape_.vocabulary,
                                 shape_.tied ? head.width * part.count : padded(shape_.vocabulary));
  if (shape_.learned_positions) {
    weights_.positions = looked_up(names.positions, shape_.context, padded(shape_.context));
  } else {
    weights_.frequencies = arena_.take<double>(shape_.head_size / 2);
  }
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) weights_.layers.push_back(layer_of(layer));
  weights_.norm = norm(names.norm);
  if (shape_.tied) {
    const Matrix& embedding = weights_.embedding;
    weights_.head = {.data = behind(embedding.data, head.first * embedding.columns, type_),
                     .rows = head.width,
                     .columns = embedding.columns};
  } else {
    weights_.head =
        matrix({model::weight_of(names.head)}, head.count, head.width, shape_.hidden, false, head.first);
  }
}

Matrix WeightLayout::reserve(std::int64_t rows, std::int64_t columns, bool is_fp8) {
  Matrix made{.rows = rows, .columns = padded(columns)};
  const std::size_t each = is_fp8 ? 1 : bytes_of(type_);
  made.data = arena_.take_bytes(static_cast<std::size_t>(made.rows * made.columns) * each);
  if (is_fp8) made.scales = arena_.take<float>(rows);
  return made;
}

// Several tensors from a row on, one below the other, each with the rows of `padded_each`.
Matrix WeightLayout::matrix(const std::vector<std::string>& tensors, std::int64_t rows_each,
                            std::int64_t padded_each, std::int64_t columns, bool is_fp8,
                            std::int64_t first_row) {
  const auto count = static_cast<std::int64_t>(tensors.size());
  const Matrix made = reserve(count * padded_each, columns, is_fp8);
  for (std::int64_t at = 0; at < count; ++at)
    add_rows(tensors[static_cast<std::size_t>(at)], first_row, rows_each, columns, made, at * padded_each,
             type_, is_fp8);
  return made;
}

void WeightLayout::add_rows(const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                            std::int64_t columns, const Matrix& to, std::int64_t to_row, Type type,
                            bool is_fp8) {
  const std::int64_t step = std::max<std::int64_t>(1, piece_elements / to.columns);
  const std::size_t row_bytes = static_cast<std::size_t>(to.columns) * (is_fp8 ? 1 : bytes_of(type));
  for (std::int64_t row = 0; row < rows; row += step) {
    WeightPiece piece{.tensor = tensor,
                      .first_row = first_row + row,
                      .rows = std::min(step, rows - row),
                      .columns = columns,
                      .stride = to.columns,
                      .type = type,
                      .is_fp8 = is_fp8};
    if (to.data != nullptr)
      piece.to = static_cast<std::byte*>(to.data) + static_cast<std::size_t>(to_row + row) * row_bytes;
    if (to.scales != nullptr) piece.scales = to.scales + to_row + row;
    pieces_.push_back(std::move(piece));
  }
}

// Vectors side by side, the n-th from places[n] on.
float* WeightLayout::vector(const std::vector<std::string>& tensors, const std::vector<std::int64_t>& counts,
                            const std::vector<std::int64_t>& places) {
  float* const made = arena_.take<float>(padded(places.back() + counts.back()));
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    pieces_.push_back({.tensor = tensors[at],
                       .rows = counts[at],
                       .columns = 1,
                       .stride = 1,
                       .type = Type::f32,
                       .to = behind(made, places[at], Type::f32)});
  }
  return made;
}

NormWeights WeightLayout::norm(const std::string& part) {
  NormWeights made{.scale = vector({model::weight_of(part)}, {shape_.hidden}, {0})};
  if (shape_.norm == model::Norm::layer) made.bias = vector({model::bias_of(part)}, {shape_.hidden}, {0});
  return made;
}

FeedForwardWeights WeightLayout::feed_forward(const std::string& gate, const std::string& up,
                                              const std::string& down, std::int64_t width) {
  std::vector<std::string> weights{model::weight_of(up)};
  std::vector<std::string> biases{model::bias_of(up)};
  std::vector<std::int64_t> counts{width};
  std::vector<std::int64_t> places{0};
  if (shape_.gated) {
    weights.insert(weights.begin(), model::weight_of(gate));
    biases.insert(biases.begin(), model::bias_of(gate));
    counts.push_back(width);
    places.push_back(padded(width));
  }
  FeedForwardWeights made;
  made.up = matrix(weights, width, padded(width), shape_.hidden, is_fp8_);
  made.down = matrix({model::weight_of(down)}, shape_.hidden, padded(shape_.hidden), width, is_fp8_);
  if (!shape_.mlp_bias) return made;
  made.up_bias = vector(biases, counts, places);
  made.down_bias = vector({model::bias_of(down)}, {shape_.hidden}, {0});
  return made;
}

LayerWeights WeightLayout::layer_of(std::int64_t layer) {
  const model::LayerNames names = model::names_of_layer(shape_, layer);
  const std::int64_t queries = shape_.heads * shape_.head_size;
  const std::int64_t keys = shape_.kv_heads * shape_.head_size;
  LayerWeights made;
  made.attention_norm = norm(names.attention_norm);
  made.qkv = reserve(Sizes(shape_).qkv, shape_.hidden, is_fp8_);
  const std::vector<std::string> parts{names.queries, names.keys, names.values};
  const std::vector<std::int64_t> counts{queries, keys, keys};
  const std::vector<std::int64_t> places{0, queries, queries + keys};
  std::vector<std::string> biases;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    add_rows(model::weight_of(parts[at]), 0, counts[at], shape_.hidden, made.qkv, places[at], type_, is_fp8_);
    biases.push_back(model::bias_of(parts[at]));
  }
  if (shape_.qkv_bias) made.qkv_bias = vector(biases, counts, places);
  if (shape_.qk_norm) {
    made.query_norm = vector({model::weight_of(names.query_norm)}, {shape_.head_size}, {0});
    made.key_norm = vector({model::weight_of(names.key_norm)}, {shape_.head_size}, {0});
  }
  made.output =
      matrix({model::weight_of(names.output)}, shape_.hidden, padded(shape_.hidden), queries, is_fp8_);
  if (shape_.output_bias) made.output_bias = vector({model::bias_of(names.output)}, {shape_.hidden}, {0});
  made.feed_forward_norm = norm(names.feed_forward_norm);
  if (shape_.has_experts(layer)) {
    made.experts = experts_of(layer, names.router);
  } else {
    const auto& part = names.feed_forward;
    made.feed_forward = feed_forward(part.gate, part.up, part.down, shape_.intermediate);
  }
  return made;
}

ExpertWeights WeightLayout::experts_of(std::int64_t layer, const std::string& router) {
  const std::int64_t count = shape_.experts.count;
  const std::int64_t stride = padded(shape_.hidden);
  ExpertWeights made;
  // Always floats: it decides.
  made.router = arena_.take<float>(count * stride);
  add_rows(model::weight_of(router), 0, count, shape_.hidden,
           {.data = made.router, .rows = count, .columns = stride}, 0, Type::f32, false);
  for (std::int64_t expert = 0; expert < count; ++expert) {
    const auto part = model::names_of_expert(shape_, layer, expert);
    made.each.push_back(feed_forward(part.gate, part.up, part.down, shape_.experts.intermediate));
  }
  made.up = arena_.take<const void*>(count);
  made.down = arena_.take<const void*>(count);
  if (is_fp8_) {
    made.up_scales = arena_.take<const float*>(count);
    made.down_scales = arena_.take<const float*>(count);
  }
  if (!shape_.mlp_bias) return made;
  made.up_bias = arena_.take<const float*>(count);
  made.down_bias = arena_.take<const float*>(count);
  return made;
}

}  // namespace tutti::serve::cuda
