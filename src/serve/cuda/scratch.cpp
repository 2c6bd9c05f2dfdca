#include "serve/cuda/scratch.hpp"

#include <algorithm>

#include "serve/cuda/buckets.hpp"
#include "serve/cuda/sizes.hpp"

namespace tutti::serve::cuda {
namespace {

// Heads that attention takes at once of those that share keys.
constexpr std::int64_t heads_at_once = 16;

// The floats of split contexts, whichever number of sequences is computed.
std::int64_t partial_floats_max(const model::Shape& shape, const StepSizes& sizes) {
  std::int64_t most = 0;
  for (std::int32_t rows = 1; rows <= sizes.tokens; ++rows) {
    const std::int32_t splits = splits_of(rows, head_groups(shape), sizes.multiprocessors, sizes.context);
    most = std::max(most, partial_floats(rows, splits, shape.heads, shape.head_size));
  }
  return most;
}

// The elements of the largest matrix that is widened: experts multiply theirs as they are.
std::int64_t largest_matrix(const model::Shape& shape, const Sizes& sizes) {
  std::int64_t features = std::max(sizes.qkv, sizes.queries);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    if (!shape.has_experts(layer)) features = std::max(features, sizes.width * sizes.halves);
  }
  return features * sizes.hidden;
}

}  // namespace

std::int64_t head_groups(const model::Shape& shape) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  return shape.kv_heads * ((group + heads_at_once - 1) / heads_at_once);
}

Scratch::Scratch(const model::Shape& shape, const StepSizes& step, Arena& arena) {
  const Sizes sizes(shape);
  const model::Experts& experts = shape.experts;
  const std::int64_t tokens = product_tokens(step.tokens);
  const std::int64_t rows = product_tokens(step.rows);
  const std::int64_t places = experts.count > 0 ? tokens * experts.chosen : 0;
  const std::int64_t wide = std::max(tokens * sizes.width, places * sizes.expert_width);
  const auto take = [&](std::int64_t elements) {
    return arena.take_bytes(static_cast<std::size_t>(elements) * bytes_of(step.type));
  };
  stream = arena.take<float>(tokens * sizes.hidden);
  normed = take(std::max(tokens, rows) * sizes.hidden);
  qkv = take(tokens * sizes.qkv);
  mixed = take(tokens * sizes.queries);
  this->wide = take(wide * sizes.halves);
  bent = take(wide);
  const bool is_alone = step.part.count == 1;
  const std::int64_t part_width = head_of_part(shape.vocabulary, step.part, row_elements).width;
  logits = arena.take<float>(rows * sizes.vocabulary);
  part_logits = is_alone ? logits : arena.take<float>(rows * part_width);
  if (!is_alone && step.part.rank == 0) gathered = arena.take<float>(rows * part_width * step.part.count);
  cosines = arena.take<float>(tokens * (shape.head_size / 2));
  sines = arena.take<float>(tokens * (shape.head_size / 2));
  partials = arena.take<float>(partial_floats_max(shape, step));
  arrived = arena.take<std::uint32_t>(tokens * shape.heads);
  if (experts.count > 0) {
    routing = {.experts = static_cast<std::int32_t>(experts.count),
               .chosen = static_cast<std::int32_t>(experts.chosen),
               .normalized = experts.normalized};
    routing.place_expert = arena.take<std::int32_t>(places);
    routing.place_weight = arena.take<float>(places);
    routing.place_row = arena.take<std::int32_t>(places);
    routing.row_place = arena.take<std::int32_t>(places);
    routing.expert_first = arena.take<std::int32_t>(experts.count + 1);
    router_scores = arena.take<float>(tokens * experts.count);
    expert_out = take(places * sizes.hidden);
  }
  known = arena.take<float>(known_rows * sizes.hidden);
  known_sums = arena.take<double>(step.rows * sizes.hidden);
  shrunk = arena.take<float>(tokens * lora_parts_max * step.adapter_rank);
  if (step.is_fp8) widened = take(largest_matrix(shape, sizes));
  inputs = arena.take_bytes(step.input_bytes);
  samples = arena.take<Sample>(step.rows);
  chosen = arena.take<std::int32_t>(2 * rows);
  workspace = arena.take_bytes(product_workspace_bytes);
}

}  // namespace tutti::serve::cuda
