#include "serve/cpu/forward.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace tutti::serve::cpu {
namespace {

// Columns that one thread bends or quantises at a time.
constexpr std::int64_t segment_columns = 1024;
// Pieces that rows are cut into for each thread: whoever is held up leaves some of his to others.
constexpr std::int64_t pieces_of_thread = 6;
// Weights that one thread multiplies at a time: as little as is still read in one go, because all wait for
// the last piece.
constexpr std::size_t piece_bytes = std::size_t{192} << 10;
// The kernels take so many panels at once.
constexpr std::int64_t panels_at_once = 4;

Bend bend_of(model::Activation activation) {
  switch (activation) {
    case model::Activation::gelu:
      return Bend::gelu;
    case model::Activation::gelu_tanh:
      return Bend::gelu_tanh;
    case model::Activation::silu:
      return Bend::silu;
  }
  return Bend::silu;
}

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Forward::Forward(const model::Shape& shape, const Weights& weights, const Adapters& adapters,
                 const Kernels& kernels, const Cache& cache, const StepSizes& sizes, Arena& arena,
                 Peers* peers)
    : shape_(shape),
      weights_(weights),
      adapters_(adapters),
      kernels_(kernels),
      cache_(cache),
      quantized_(is_quantized(weights.head.type)),
      zero_(zero_of(weights.head.type)),
      threads_(sizes.threads),
      peers_(peers) {
  const model::Experts& experts = shape.experts;
  const std::int64_t queries = shape.heads * shape.head_size;
  const std::int64_t widest = std::max(shape.intermediate, experts.intermediate);
  // Each token is a row of as many experts as it goes to.
  const std::int64_t wide_rows = sizes.tokens * std::max<std::int64_t>(1, experts.chosen);
  hidden_stride_ = whole_blocks(shape.hidden);
  keys_at_ = whole_panels(queries);
  values_at_ = keys_at_ + whole_panels(shape.kv_heads * shape.head_size);
  qkv_stride_ = values_at_ + whole_panels(shape.kv_heads * shape.head_size);
  mixed_stride_ = whole_blocks(queries);
  wide_stride_ = whole_panels(widest) * (shape.gated ? 2 : 1);
  bent_stride_ = whole_blocks(widest);
  const Part part = peers == nullptr ? Part{} : Part{peers->rank(), peers->count()};
  part_stride_ = head_of_part(shape.vocabulary, part, panel_rows).width;
  logits_stride_ = part_stride_ * part.count;
  scores_stride_ = divided_up(sizes.context, block_positions) * block_positions;
  shrunk_stride_ = sizes.adapters_width;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t hidden_rows = std::max(sizes.tokens, sizes.rows);
  stream_ = arena.take<float>(sizes.tokens * hidden_stride_);
  normed_ = arena.take<float>(hidden_rows * hidden_stride_);
  qkv_ = arena.take<float>(sizes.tokens * qkv_stride_);
  mixed_ = arena.take<float>(sizes.tokens * mixed_stride_);
  wide_ = arena.take<float>(wide_rows * wide_stride_);
  bent_ = arena.take<float>(wide_rows * bent_stride_);
  part_logits_ = arena.take<float>(sizes.rows * part_stride_);
  logits_ = part.count > 1 && is_first() ? arena.take<float>(sizes.rows * logits_stride_) : part_logits_;
  scores_ = arena.take<float>(sizes.threads * group * scores_stride_);
  cosines_ = arena.take<float>(sizes.tokens * shape.head_size);
  sines_ = arena.take<float>(sizes.tokens * shape.head_size);
  shrunk_ = arena.take<float>(sizes.tokens * shrunk_stride_);
  const std::int64_t quants = std::max({hidden_rows * hidden_stride_, sizes.tokens * mixed_stride_,
                                        wide_rows * bent_stride_, wide_rows * hidden_stride_});
  quants_ = arena.take<std::int8_t>(quants);
  scales_ = arena.take<float>(quants / block_columns);
  offsets_ = arena.take<std::int32_t>(quants / block_columns);
  if (experts.count > 0) {
    router_ = arena.take<float>(sizes.tokens * whole_panels(experts.count));
    gathered_ = arena.take<float>(wide_rows * hidden_stride_);
    expert_out_ = arena.take<float>(wide_rows * hidden_stride_);
    const auto places = static_cast<std::size_t>(wide_rows);
    place_expert_.resize(places);
    place_weight_.resize(places);
    place_row_.resize(places);
    row_place_.resize(places);
    expert_first_.resize(static_cast<std::size_t>(experts.count) + 1);
    expert_next_.resize(static_cast<std::size_t>(experts.count));
  }
  // A step takes no memory: whoever had none in the middle of it would leave the others waiting for him.
  if (shrunk_stride_ > 0) slices_.reserve(static_cast<std::size_t>(sizes.tokens));
  for (const LayerWeights& layer : weights.layers) {
    if (layer.experts.empty()) continue;
    for (const Matrix* matrix : {&layer.experts.front().up, &layer.experts.front().down})
      expert_pieces_.reserve(
          static_cast<std::size_t>(experts.count * divided_up(matrix->panels, grain_of(*matrix))));
  }
  if (!shape.learned_positions) frequencies_ = model::frequencies(shape.rope, shape.head_size);
}

std::span<const float> Forward::hidden(std::int64_t row) const {
  return {normed_ + row * hidden_stride_, static_cast<std::size_t>(shape_.hidden)};
}

std::vector<double> Forward::hidden_sum(std::int64_t first, std::int64_t count) const {
  std::vector<float> normed(static_cast<std::size_t>(hidden_stride_));
  std::vector<double> sum(static_cast<std::size_t>(shape_.hidden));
  for (std::int64_t token = first; token < first + count; ++token) {
    normalize(weights_.norm, stream_ + token * hidden_stride_, normed.data());
    for (std::size_t at = 0; at < sum.size(); ++at) sum[at] += static_cast<double>(normed[at]);
  }
  return sum;
}

std::span<const float> Forward::logits(std::int64_t row) const {
  return {logits_ + row * logits_stride_, static_cast<std::size_t>(shape_.vocabulary)};
}

std::int64_t Forward::grain_of(const Matrix& matrix) const {
  const auto of_piece = static_cast<std::int64_t>(piece_bytes / matrix.panel_bytes());
  const std::int64_t fair = divided_up(matrix.panels, threads_ * pieces_of_thread);
  return divided_up(std::max<std::int64_t>(1, std::min(of_piece, fair)), panels_at_once) * panels_at_once;
}

void Forward::multiply(const Matrix& matrix, std::int64_t first_panel, std::int64_t end_panel,
                       const Input& input, const Output& output) const {
  const bool from_quants = is_quantized(matrix.type);
  const std::int64_t columns = from_quants ? whole_blocks(matrix.columns) : matrix.columns;
  const std::int64_t blocks = columns / block_columns;
  const Product job{.panels = matrix.panel(first_panel),
                    .panel_bytes = matrix.panel_bytes(),
                    .panel_count = end_panel - first_panel,
                    .columns = columns,
                    .values = input.values + input.first * input.stride,
                    .values_stride = input.stride,
                    .quants = from_quants ? quants_ + input.first * columns : nullptr,
                    .scales = from_quants ? scales_ + input.first * blocks : nullptr,
                    .offsets = from_quants ? offsets_ + input.first * blocks : nullptr,
                    .tokens = input.rows,
                    .out = output.values + input.first * output.stride + first_panel * panel_rows,
                    .out_stride = output.stride,
                    .bias = output.bias == nullptr ? nullptr : output.bias + first_panel * panel_rows,
                    .add = output.add};
  kernels_.product[static_cast<std::size_t>(matrix.type)](job);
}

void Forward::product(Member& member, const Matrix& matrix, const Input& input, const Output& output) const {
  member.share(matrix.panels, grain_of(matrix),
               [&](std::int64_t begin, std::int64_t end) { multiply(matrix, begin, end, input, output); });
}

void Forward::normalize(const NormWeights& norm, const float* values, float* out) const {
  const Normalize job{.values = values,
                      .count = shape_.hidden,
                      .scale = norm.scale,
                      .bias = norm.bias,
                      .epsilon = static_cast<float>(shape_.norm_epsilon),
                      .out = out};
  if (shape_.norm == model::Norm::rms) {
    kernels_.normalize_rms(job);
  } else {
    kernels_.normalize_layer(job);
  }
}

void Forward::quantize(const float* values, std::int64_t row, std::int64_t row_columns, std::int64_t begin,
                       std::int64_t end) const {
  const std::int64_t at = row * row_columns + begin;
  kernels_.quantize({.values = values + begin,
                     .columns = end - begin,
                     .zero = zero_,
                     .quants = quants_ + at,
                     .scales = scales_ + at / block_columns,
                     .offsets = offsets_ + at / block_columns});
}

void Forward::quantize_rows(Member& member, const Input& input, std::int64_t columns) const {
  const std::int64_t segments = divided_up(columns, segment_columns);
  const std::int64_t pieces = input.rows * segments;
  member.share(pieces, divided_up(pieces, threads_ * pieces_of_thread),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t piece = begin; piece < end; ++piece) {
                   const std::int64_t row = piece / segments;
                   const std::int64_t first = piece % segments * segment_columns;
                   quantize(input.values + row * input.stride, row, columns, first,
                            std::min(first + segment_columns, columns));
                 }
               });
}

void Forward::embed(Member& member) {
  const std::int64_t half = shape_.head_size / 2;
  const double factor = shape_.rope.attention_factor;
  member.share(count_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const StepToken& token = tokens_[static_cast<std::size_t>(at)];
      float* const row = stream_ + at * hidden_stride_;
      unpack_row(weights_.embedding, token.token, row);
      if (shape_.learned_positions) {
        float* const position = normed_ + at * hidden_stride_;
        unpack_row(weights_.positions, token.position, position);
        kernels_.add_scaled(position, 1, row, shape_.hidden);
      }
      for (std::size_t pair = 0; pair < frequencies_.size(); ++pair) {
        const double angle = frequencies_[pair] * static_cast<double>(token.position);
        cosines_[at * half + static_cast<std::int64_t>(pair)] = static_cast<float>(factor * std::cos(angle));
        sines_[at * half + static_cast<std::int64_t>(pair)] = static_cast<float>(factor * std::sin(angle));
      }
    }
  });
}

void Forward::normalize_all(Member& member, const NormWeights& norm) {
  member.share(count_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      float* const row = normed_ + at * hidden_stride_;
      normalize(norm, stream_ + at * hidden_stride_, row);
      if (quantized_) quantize(row, at, hidden_stride_, 0, hidden_stride_);
    }
  });
}

// Turns the queries and keys of a token, and puts its keys and values into their block.
void Forward::place(std::int64_t layer, std::int64_t token) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const StepToken& at = tokens_[static_cast<std::size_t>(token)];
  const std::int64_t size = shape_.head_size;
  float* const row = qkv_ + token * qkv_stride_;
  for (std::int64_t head = 0; head < shape_.heads + shape_.kv_heads; ++head) {
    const bool is_query = head < shape_.heads;
    float* const numbers = is_query ? row + head * size : row + keys_at_ + (head - shape_.heads) * size;
    if (shape_.qk_norm) {
      kernels_.normalize_rms({.values = numbers,
                              .count = size,
                              .scale = is_query ? weights.query_norm : weights.key_norm,
                              .bias = nullptr,
                              .epsilon = static_cast<float>(shape_.norm_epsilon),
                              .out = numbers});
    }
    if (!shape_.learned_positions)
      kernels_.rotate(numbers, cosines_ + token * (size / 2), sines_ + token * (size / 2), size / 2);
  }
  const std::int64_t block = at.blocks[at.position / block_positions];
  const std::int64_t slot = at.position % block_positions;
  for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
    float* const keys = cache_.keys(layer, head) + block * cache_.block_stride();
    float* const values = cache_.values(layer, head) + block * cache_.block_stride();
    for (std::int64_t number = 0; number < size; ++number)
      keys[number * block_positions + slot] = row[keys_at_ + head * size + number];
    std::copy_n(row + values_at_ + head * size, size, values + slot * cache_.values_stride());
  }
}

void Forward::attend(Member& member, std::int64_t layer, std::int64_t token, std::int64_t head) {
  const StepToken& at = tokens_[static_cast<std::size_t>(token)];
  const std::int64_t group = shape_.heads / shape_.kv_heads;
  const std::int64_t first = head * group * shape_.head_size;
  const std::int64_t end = at.position + 1;
  kernels_.attend({.queries = qkv_ + token * qkv_stride_ + first,
                   .heads = group,
                   .head_size = shape_.head_size,
                   .values_stride = cache_.values_stride(),
                   .keys = cache_.keys(layer, head),
                   .values = cache_.values(layer, head),
                   .block_stride = cache_.block_stride(),
                   .blocks = at.blocks,
                   .begin = shape_.window > 0 ? std::max<std::int64_t>(0, end - shape_.window) : 0,
                   .end = end,
                   .scores = scores_ + member.index() * group * scores_stride_,
                   .scores_stride = scores_stride_,
                   .out = mixed_ + token * mixed_stride_ + first});
}

void Forward::attention(Member& member, std::int64_t layer) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  normalize_all(member, weights.attention_norm);
  const Input normed{normed_, hidden_stride_, count_};
  product(member, weights.qkv, normed, {qkv_, qkv_stride_, weights.qkv_bias});
  adapt(member, layer, lora::Product::qkv, weights.qkv, normed, {qkv_, qkv_stride_});
  member.share(count_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) place(layer, token);
  });
  const std::int64_t pieces = count_ * shape_.kv_heads;
  member.share(pieces, std::max<std::int64_t>(1, pieces / (threads_ * 16)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t piece = begin; piece < end; ++piece)
                   attend(member, layer, piece / shape_.kv_heads, piece % shape_.kv_heads);
               });
  const Input mixed{mixed_, mixed_stride_, count_};
  if (quantized_) quantize_rows(member, mixed, mixed_stride_);
  product(member, weights.output, mixed, {stream_, hidden_stride_, weights.output_bias, is_first()});
  adapt(member, layer, lora::Product::output, weights.output, mixed, {stream_, hidden_stride_});
  sum(member);
}

// What comes of the gate and the matrix beside it, and quantised where that is wanted.
void Forward::bend_rows(Member& member, std::int64_t rows, std::int64_t width) {
  const std::int64_t columns = whole_blocks(width);
  const std::int64_t segments = divided_up(columns, segment_columns);
  const std::int64_t pieces = rows * segments;
  const auto how = bend_of(shape_.activation);
  member.share(
      pieces, divided_up(pieces, threads_ * pieces_of_thread), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t piece = begin; piece < end; ++piece) {
          const std::int64_t row = piece / segments;
          const std::int64_t first = piece % segments * segment_columns;
          const std::int64_t count = std::min(segment_columns, width - first);
          const float* const wide = wide_ + row * wide_stride_ + first;
          float* const bent = bent_ + row * bent_stride_;
          kernels_.bend(how, wide, shape_.gated ? wide + whole_panels(width) : nullptr, bent + first, count);
          if (!quantized_) continue;
          const std::int64_t end_column = std::min(first + segment_columns, columns);
          // The widths of layers may differ, and an earlier one may have left something here.
          std::fill(bent + first + count, bent + end_column, 0.0F);
          quantize(bent, row, columns, first, end_column);
        }
      });
}

void Forward::feed_forward(Member& member, std::int64_t layer) {
  const LayerWeights& all = weights_.layers[static_cast<std::size_t>(layer)];
  normalize_all(member, all.feed_forward_norm);
  if (!all.experts.empty()) return mix_experts(member, all);
  const FeedForwardWeights& weights = all.feed_forward;
  const Input normed{normed_, hidden_stride_, count_};
  const Input bent{bent_, bent_stride_, count_};
  product(member, weights.up, normed, {wide_, wide_stride_, weights.up_bias});
  adapt(member, layer, lora::Product::up, weights.up, normed, {wide_, wide_stride_});
  bend_rows(member, count_, weights.width);
  product(member, weights.down, bent, {stream_, hidden_stride_, weights.down_bias, is_first()});
  adapt(member, layer, lora::Product::down, weights.down, bent, {stream_, hidden_stride_});
  sum(member);
}

void Forward::head(Member& member, std::span<const std::int64_t> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  member.share(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* const normed = normed_ + row * hidden_stride_;
      normalize(weights_.norm, stream_ + rows[static_cast<std::size_t>(row)] * hidden_stride_, normed);
      if (quantized_) quantize(normed, row, hidden_stride_, 0, hidden_stride_);
    }
  });
  product(member, weights_.head, {normed_, hidden_stride_, count}, {part_logits_, part_stride_});
  gather(member, count);
}

void Forward::run(Member& member, std::span<const StepToken> tokens, std::span<const std::int64_t> rows) {
  if (member.index() == 0) {
    tokens_ = tokens;
    count_ = static_cast<std::int64_t>(tokens.size());
    slice_adapters();
  }
  member.meet();
  embed(member);
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
    attention(member, layer);
    feed_forward(member, layer);
  }
  if (!rows.empty()) head(member, rows);
}

}  // namespace tutti::serve::cpu
