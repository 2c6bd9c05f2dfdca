// Attention over the blocks of a sequence, as templates: see kernel_vector.hpp. Keys lie column by column
// within a block, so that a register holds a number of sixteen positions; values lie position by position.
// Scores are summed over the positions in their order, from the first block on, whatever piece of a prompt a
// token came with.
#pragma once

#include "serve/cpu/kernel_vector.hpp"

namespace {

// The scores of some heads with the positions of one block.
template <int heads>
void score_block(const Attend& job, std::int64_t head, const float* keys, std::int64_t block, float factor) {
  Vector sums[heads][slices] = {};
  const float* const queries = job.queries + head * job.head_size;
  for (std::int64_t at = 0; at < job.head_size; ++at) {
#pragma GCC unroll 8
    for (int h = 0; h < heads; ++h) {
      const Vector query = all(queries[h * job.head_size + at]);
#pragma GCC unroll 4
      for (int s = 0; s < slices; ++s)
        sums[h][s] = sums[h][s] + query * load(keys + at * block_positions + s * lanes);
    }
  }
  for (int h = 0; h < heads; ++h)
    for (int s = 0; s < slices; ++s)
      store(job.scores + (head + h) * job.scores_stride + block * block_positions + s * lanes,
            sums[h][s] * factor);
}

// Scores of a head become weights that are not yet divided by their sum, which is returned. Positions of the
// first and the last block that are not seen become nothing.
float weigh(const Attend& job, float* scores) {
  constexpr float nothing = -3.0e38F;
  const std::int64_t first = job.begin / block_positions * block_positions;
  const std::int64_t last = (job.end + block_positions - 1) / block_positions * block_positions;
  for (std::int64_t at = first; at < job.begin; ++at) scores[at] = nothing;
  for (std::int64_t at = job.end; at < last; ++at) scores[at] = nothing;
  Vector most = all(nothing);
  for (std::int64_t at = first; at < last; at += lanes) most = larger(load(scores + at), most);
  float largest = nothing;
  for (int lane = 0; lane < lanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
  Sixteen sums;
  for (std::int64_t at = first; at < last; at += panel_rows) {
    for (int slice = 0; slice < slices; ++slice) {
      const Vector weight = exponential(load(scores + at + slice * lanes) - largest);
      sums.part[slice] = sums.part[slice] + weight;
      store(scores + at + slice * lanes, weight);
    }
  }
  return sum_of(sums);
}

// The values of all positions, weighed: `registers` of a value's numbers, of some heads at once.
template <int heads, int registers>
void mix_values(const Attend& job, std::int64_t head, std::int64_t at, const float* totals) {
  Vector sums[heads][registers] = {};
  const float* const scores = job.scores + head * job.scores_stride;
  for (std::int64_t position = job.begin; position < job.end;) {
    const std::int64_t block = position / block_positions;
    const float* const values = job.values + job.blocks[block] * job.block_stride + at;
    const std::int64_t end =
        (block + 1) * block_positions < job.end ? (block + 1) * block_positions : job.end;
    for (; position < end; ++position) {
      const float* const value = values + (position - block * block_positions) * job.values_stride;
      Vector numbers[registers];
#pragma GCC unroll 8
      for (int r = 0; r < registers; ++r) numbers[r] = load(value + r * lanes);
#pragma GCC unroll 8
      for (int h = 0; h < heads; ++h) {
        const Vector weight = all(scores[h * job.scores_stride + position]);
#pragma GCC unroll 8
        for (int r = 0; r < registers; ++r) sums[h][r] = sums[h][r] + weight * numbers[r];
      }
    }
  }
  for (int h = 0; h < heads; ++h) {
    float mixed[registers * lanes];
    for (int r = 0; r < registers; ++r) store(mixed + r * lanes, sums[h][r] / totals[h]);
    const std::int64_t left = job.head_size - at;
    const std::int64_t count = left < registers * lanes ? left : registers * lanes;
    __builtin_memcpy(job.out + (head + h) * job.head_size + at, mixed,
                     static_cast<std::size_t>(count) * sizeof(float));
  }
}

template <int heads>
void attend_heads(const Attend& job, std::int64_t head) {
  const float factor = 1 / __builtin_sqrtf(static_cast<float>(job.head_size));
  for (std::int64_t block = job.begin / block_positions; block * block_positions < job.end; ++block)
    score_block<heads>(job, head, job.keys + job.blocks[block] * job.block_stride, block, factor);
  float totals[heads];
  for (int h = 0; h < heads; ++h) totals[h] = weigh(job, job.scores + (head + h) * job.scores_stride);
  std::int64_t at = 0;
  for (; at + 4 * lanes <= job.values_stride; at += 4 * lanes) mix_values<heads, 4>(job, head, at, totals);
  for (; at < job.head_size; at += lanes) mix_values<heads, 1>(job, head, at, totals);
}

void attend(const Attend& job) {
  std::int64_t head = 0;
  if constexpr (lanes == 16)
    for (; head + 4 <= job.heads; head += 4) attend_heads<4>(job, head);
  for (; head + 2 <= job.heads; head += 2) attend_heads<2>(job, head);
  for (; head < job.heads; ++head) attend_heads<1>(job, head);
}

}  // namespace
