#include "serve/cuda/forward.hpp"

#include <algorithm>
#include <vector>

#include "serve/cuda/buckets.hpp"

namespace tutti::serve::cuda {
namespace {

Activation activation_of(model::Activation activation) {
  switch (activation) {
    case model::Activation::gelu:
      return Activation::gelu;
    case model::Activation::gelu_tanh:
      return Activation::gelu_tanh;
    case model::Activation::silu:
      return Activation::silu;
  }
  return Activation::none;
}

}  // namespace

Forward::Forward(const model::Shape& shape, const Weights& weights, const Scratch& scratch,
                 Products& products, std::byte* cache, std::int64_t cache_blocks, const StepSizes& sizes,
                 Peers* peers)
    : shape_(shape),
      weights_(weights),
      scratch_(scratch),
      products_(products),
      sizes_(shape),
      type_(sizes.type),
      is_fp8_(sizes.is_fp8),
      cache_(cache),
      layer_bytes_(
          static_cast<std::size_t>(2 * cache_blocks * shape.kv_heads * shape.head_size * block_positions) *
          bytes_of(sizes.type)),
      rows_(sizes.rows),
      context_(sizes.context),
      multiprocessors_(sizes.multiprocessors),
      adapter_rank_(static_cast<std::int32_t>(sizes.adapter_rank)),
      fast_(sizes.fast_attention && cuda::attends_fast(sizes.type, static_cast<std::int32_t>(shape.head_size),
                                                       static_cast<std::int32_t>(shape.heads),
                                                       static_cast<std::int32_t>(shape.kv_heads))),
      tile_tokens_(fast_ ? cuda::tile_tokens(static_cast<std::int32_t>(shape.head_size),
                                             static_cast<std::int32_t>(shape.heads),
                                             static_cast<std::int32_t>(shape.kv_heads))
                         : 1),
      activation_(activation_of(shape.activation)),
      part_(sizes.part),
      peers_(peers) {}

LogitRows Forward::logits() const {
  return {scratch_.logits, sizes_.vocabulary, static_cast<std::int32_t>(shape_.vocabulary)};
}

Norm Forward::norm_of(const NormWeights& weights) const {
  return {.columns = shape_.hidden,
          .epsilon = static_cast<float>(shape_.norm_epsilon),
          .scale = weights.scale,
          .bias = weights.bias};
}

void Forward::norm(const Step& step, const NormWeights& weights, const float* added) {
  norm_rows({.type = type_,
             .count = step.view.tokens.count,
             .stride = sizes_.hidden,
             .norm = norm_of(weights),
             .stream = scratch_.stream,
             .added = added,
             .out = scratch_.normed},
            step.queue);
}

void Forward::multiply(const Step& step, const Matrix& matrix, const void* values, std::int64_t tokens,
                       void* out, bool gives_floats, bool adds) {
  if (matrix.scales != nullptr) {
    widen({.codes = matrix.data,
           .scales = matrix.scales,
           .rows = matrix.rows,
           .columns = matrix.columns,
           .out = scratch_.widened},
          step.queue);
  }
  products_.multiply({.type = type_,
                      .matrix = multiplied(matrix),
                      .values = values,
                      .tokens = tokens,
                      .out = out,
                      .gives_floats = gives_floats || type_ == Type::f32,
                      .adds = adds},
                     static_cast<cudaStream_t>(step.queue.stream));
}

// What the library is given: a matrix of fp8 is widened before each product.
Matrix Forward::multiplied(const Matrix& matrix) const {
  if (matrix.scales == nullptr) return matrix;
  return {.data = scratch_.widened, .rows = matrix.rows, .columns = matrix.columns};
}

void Forward::attend(const Step& step, std::int64_t layer) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const auto heads = static_cast<std::int32_t>(shape_.heads);
  const auto kv_heads = static_cast<std::int32_t>(shape_.kv_heads);
  const auto head_size = static_cast<std::int32_t>(shape_.head_size);
  const Turn turn{.heads = heads,
                  .kv_heads = kv_heads,
                  .head_size = head_size,
                  .stride = sizes_.qkv,
                  .bias = weights.qkv_bias,
                  .query_norm = weights.query_norm,
                  .key_norm = weights.key_norm,
                  .epsilon = static_cast<float>(shape_.norm_epsilon),
                  .cosines = shape_.learned_positions ? nullptr : scratch_.cosines,
                  .sines = shape_.learned_positions ? nullptr : scratch_.sines};
  const Cache cache{cache_ + static_cast<std::size_t>(layer) * layer_bytes_, kv_heads, head_size};
  const Attention job{.type = type_,
                      .tokens = step.view.tokens,
                      .turn = turn,
                      .qkv = scratch_.qkv,
                      .cache = cache,
                      .window = static_cast<std::int32_t>(shape_.window),
                      .out = scratch_.mixed,
                      .out_stride = sizes_.queries};
  const std::int32_t alone = fast_ ? step.view.alone : 0;
  if (alone < step.view.tokens.count) {
    place({.type = type_,
           .tokens = step.view.tokens,
           .first = alone,
           .turn = turn,
           .qkv = scratch_.qkv,
           .cache = cache},
          step.queue);
  }
  if (!fast_) return attend_plainly(job, 0, step.queue);
  if (alone > 0) {
    attend_one(job,
               {.rows = alone,
                .splits = splits_of(alone, head_groups(shape_), multiprocessors_, context_),
                .by_one_warp = by_one_warp(alone, head_groups(shape_)),
                .partial = scratch_.partials,
                .arrived = scratch_.arrived},
               step.queue);
  }
  if (step.view.tile_count > 0) attend_tiles(job, step.view.tiles, step.view.tile_count, step.queue);
}

void Forward::attention(const Step& step, std::int64_t layer) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const std::int32_t count = step.view.tokens.count;
  if (step.few && adapter_rank_ == 0) {
    multiply_few({.rows = count,
                  .stream = scratch_.stream,
                  .norm = norm_of(weights.attention_norm),
                  .columns = sizes_.hidden,
                  .weights = weights.qkv.data,
                  .scales = weights.qkv.scales,
                  .features = weights.qkv.rows,
                  .out = scratch_.qkv,
                  .out_stride = sizes_.qkv},
                 step.queue);
    attend(step, layer);
    multiply_few({.rows = count,
                  .values = scratch_.mixed,
                  .columns = sizes_.queries,
                  .weights = weights.output.data,
                  .scales = weights.output.scales,
                  .features = weights.output.rows,
                  .bias = weights.output_bias,
                  .added_to = is_first() ? scratch_.stream : nullptr,
                  .floats = is_first() ? nullptr : scratch_.stream,
                  .out_stride = sizes_.hidden},
                 step.queue);
    return sum(step);
  }
  norm(step, weights.attention_norm, weights.output_bias);
  project(step, weights.qkv, scratch_.normed, scratch_.qkv, false);
  adapt(step, weights, lora::Product::qkv, scratch_.normed, sizes_.hidden, scratch_.qkv, sizes_.qkv);
  attend(step, layer);
  project(step, weights.output, scratch_.mixed, scratch_.stream, true);
  adapt(step, weights, lora::Product::output, scratch_.mixed, sizes_.queries, scratch_.stream, sizes_.hidden);
  sum(step);
}

void Forward::feed_forward(const Step& step, const LayerWeights& layer) {
  if (!layer.experts.each.empty()) return mix_experts(step, layer);
  const FeedForwardWeights& weights = layer.feed_forward;
  const std::int32_t count = step.view.tokens.count;
  if (step.few && adapter_rank_ == 0) {
    multiply_few({.rows = count,
                  .stream = scratch_.stream,
                  .norm = norm_of(layer.feed_forward_norm),
                  .columns = sizes_.hidden,
                  .weights = weights.up.data,
                  .scales = weights.up.scales,
                  .features = weights.up.rows,
                  .bias = weights.up_bias,
                  .out = scratch_.bent,
                  .out_stride = sizes_.width,
                  .activation = activation_,
                  .gated = shape_.gated},
                 step.queue);
    multiply_few({.rows = count,
                  .values = scratch_.bent,
                  .columns = sizes_.width,
                  .weights = weights.down.data,
                  .scales = weights.down.scales,
                  .features = weights.down.rows,
                  .bias = weights.down_bias,
                  .added_to = is_first() ? scratch_.stream : nullptr,
                  .floats = is_first() ? nullptr : scratch_.stream,
                  .out_stride = sizes_.hidden},
                 step.queue);
    return sum(step);
  }
  norm(step, layer.feed_forward_norm, weights.down_bias);
  project(step, weights.up, scratch_.normed, scratch_.wide, false);
  adapt(step, layer, lora::Product::up, scratch_.normed, sizes_.hidden, scratch_.wide,
        sizes_.width * sizes_.halves);
  activate({.type = type_,
            .activation = activation_,
            .gated = shape_.gated,
            .rows = count,
            .width = sizes_.width,
            .bias = weights.up_bias,
            .wide = scratch_.wide,
            .out = scratch_.bent},
           step.queue);
  project(step, weights.down, scratch_.bent, scratch_.stream, true);
  adapt(step, layer, lora::Product::down, scratch_.bent, sizes_.width, scratch_.stream, sizes_.hidden);
  sum(step);
}

void Forward::mix_experts(const Step& step, const LayerWeights& layer) {
  const ExpertWeights& weights = layer.experts;
  Routing routing = scratch_.routing;
  routing.tokens = step.view.tokens.count;
  norm(step, layer.feed_forward_norm, nullptr);
  route({.type = type_,
         .routing = routing,
         .columns = sizes_.hidden,
         .values = scratch_.normed,
         .router = weights.router,
         .scores = scratch_.router_scores},
        step.queue);
  multiply_experts({.type = type_,
                    .routing = routing,
                    .columns = sizes_.hidden,
                    .values = scratch_.normed,
                    .by_token = true,
                    .weights = weights.up,
                    .scales = weights.up_scales,
                    .biases = weights.up_bias,
                    .features = sizes_.expert_width * sizes_.halves,
                    .out = scratch_.wide},
                   step.queue);
  activate({.type = type_,
            .activation = activation_,
            .gated = shape_.gated,
            .rows = std::int64_t{routing.tokens} * routing.chosen,
            .width = sizes_.expert_width,
            .wide = scratch_.wide,
            .out = scratch_.bent},
           step.queue);
  multiply_experts({.type = type_,
                    .routing = routing,
                    .columns = sizes_.expert_width,
                    .values = scratch_.bent,
                    .weights = weights.down,
                    .scales = weights.down_scales,
                    .biases = weights.down_bias,
                    .features = sizes_.hidden,
                    .out = scratch_.expert_out},
                   step.queue);
  if (!is_first()) clear_stream(step);
  mix({.type = type_,
       .routing = routing,
       .columns = sizes_.hidden,
       .out = scratch_.expert_out,
       .stream = scratch_.stream},
      step.queue);
  sum(step);
}

void Forward::head(const Step& step) {
  const StepView& view = step.view;
  if (view.row_count == 0) return;
  const bool few = type_ == Type::bf16 && fits_few(view.row_count, sizes_.hidden);
  const bool straight = few && view.rows == nullptr;
  if (!straight) {
    norm_rows({.type = type_,
               .count = view.row_count,
               .stride = sizes_.hidden,
               .norm = norm_of(weights_.norm),
               .stream = scratch_.stream,
               .rows = view.rows,
               .out = scratch_.normed},
              step.queue);
  }
  if (few) {
    multiply_few({.rows = view.row_count,
                  .values = scratch_.normed,
                  .stream = straight ? scratch_.stream : nullptr,
                  .norm = norm_of(weights_.norm),
                  .columns = sizes_.hidden,
                  .weights = weights_.head.data,
                  .features = weights_.head.rows,
                  .floats = scratch_.part_logits,
                  .out_stride = weights_.head.rows},
                 step.queue);
  } else {
    multiply(step, weights_.head, scratch_.normed, product_tokens(view.row_count), scratch_.part_logits,
             true);
  }
  gather(step);
  if (!is_first()) return;
  choose_largest(logits(), view.row_count, view.largest, step.queue);
}

void Forward::run(const StepView& view, const Queue& queue) {
  const std::int32_t count = view.tokens.count;
  const bool few = type_ == Type::bf16 &&
                   fits_few(count, std::max({sizes_.hidden, sizes_.queries, sizes_.width}), is_fp8_);
  // The head of more rows is the library's, whatever the layers are.
  const bool has_products = !few || count > few_rows_max;
  const Queue own{queue.stream, queue.overlaps && (!has_products || overlaps_products_)};
  const Step step{view, own, product_tokens(count), few};
  embed({.type = type_,
         .tokens = view.tokens,
         .chosen = scratch_.chosen,
         .columns = sizes_.hidden,
         .embedding = weights_.embedding.data,
         .positions = weights_.positions.data,
         .frequencies = weights_.frequencies,
         .factor = shape_.rope.attention_factor,
         .pairs = static_cast<std::int32_t>(shape_.head_size / 2),
         .stream = scratch_.stream,
         .cosines = scratch_.cosines,
         .sines = scratch_.sines},
        own);
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
    attention(step, layer);
    feed_forward(step, weights_.layers[static_cast<std::size_t>(layer)]);
  }
  head(step);
}

Result<> Forward::tune(std::int64_t tokens, const Queue& queue) {
  struct Kind {
    Matrix (*of)(const LayerWeights&);
    const void* values;
    void* out;
    bool gives_floats;
  };
  const std::vector<Kind> kinds{
      {[](const LayerWeights& layer) { return layer.qkv; }, scratch_.normed, scratch_.qkv, false},
      {[](const LayerWeights& layer) { return layer.output; }, scratch_.mixed, scratch_.stream, true},
      {[](const LayerWeights& layer) { return layer.feed_forward.up; }, scratch_.normed, scratch_.wide,
       false},
      {[](const LayerWeights& layer) { return layer.feed_forward.down; }, scratch_.bent, scratch_.stream,
       true}};
  const auto tune_one = [&](const std::vector<Matrix>& matrices, const Kind& kind, bool adds) -> Result<> {
    if (matrices.empty()) return {};
    return products_.tune({.type = type_,
                           .matrix = matrices.front(),
                           .values = kind.values,
                           .tokens = product_tokens(tokens),
                           .out = kind.out,
                           .gives_floats = kind.gives_floats || type_ == Type::f32,
                           .adds = adds},
                          matrices, static_cast<cudaStream_t>(queue.stream));
  };
  for (const Kind& kind : kinds) {
    std::vector<Matrix> matrices;
    for (const LayerWeights& layer : weights_.layers) {
      if (kind.of(layer).data != nullptr) matrices.push_back(multiplied(kind.of(layer)));
    }
    // What gives floats here is for the stream.
    if (auto done = tune_one(matrices, kind, kind.gives_floats && is_first()); !done) return done;
  }
  if (tokens > rows_) return {};
  return tune_one({weights_.head}, {nullptr, scratch_.normed, scratch_.part_logits, true}, false);
}

}  // namespace tutti::serve::cuda
