#include "serve/cuda/inputs.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "serve/cuda/buckets.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr std::int32_t block_tokens = 4;
constexpr std::int32_t tile = 3;

struct Packed {
  StepCounts counts;
  std::vector<std::int32_t> numbers;

  std::vector<std::int32_t> part(std::size_t from, std::int64_t count) const {
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(from / sizeof(std::int32_t));
    return {begin, begin + count};
  }
  InputLayout layout() const { return {counts.tokens, counts.rows, counts.tiles}; }
};

Packed packed(const std::vector<Chunk>& chunks, std::int32_t bucket = 0) {
  Packed made{count_step(chunks, block_tokens, tile), std::vector<std::int32_t>(4096, -7)};
  if (bucket > 0) made.counts.tokens = made.counts.alone = made.counts.rows = bucket;
  const std::size_t bytes =
      pack_step(chunks, made.counts, block_tokens, tile, std::as_writable_bytes(std::span(made.numbers)));
  EXPECT_EQ(bytes, input_bytes(made.counts));
  return made;
}

using Numbers = std::vector<std::int32_t>;

TEST(Inputs, PutTokensThatAreAloneFirst) {
  const std::vector<Token> prompt{10, 11, 12, 13, 14};
  const std::vector<Token> one{20};
  const std::vector<Token> other{30};
  const std::vector<BlockId> prompt_blocks{7, 8, 9};
  const std::vector<BlockId> one_blocks{1, 2, 3};
  const std::vector<BlockId> other_blocks{4};
  const Packed step = packed({{.tokens = prompt, .first = 4, .blocks = prompt_blocks, .rows = 2},
                              {.tokens = one, .first = 9, .blocks = one_blocks, .rows = 1, .adapter = 2},
                              {.tokens = other, .first = 0, .blocks = other_blocks, .rows = 0}});
  EXPECT_EQ(step.counts.tokens, 7);
  EXPECT_EQ(step.counts.alone, 2);
  EXPECT_EQ(step.counts.rows, 3);
  EXPECT_EQ(step.counts.tiles, 2);
  EXPECT_FALSE(step.counts.is_plain);
  const InputLayout layout = step.layout();
  EXPECT_EQ(step.part(layout.tokens(), 7), (Numbers{20, 30, 10, 11, 12, 13, 14}));
  EXPECT_EQ(step.part(layout.positions(), 7), (Numbers{9, 0, 4, 5, 6, 7, 8}));
  EXPECT_EQ(step.part(layout.table_places(), 7), (Numbers{0, 3, 4, 4, 4, 4, 4}));
  EXPECT_EQ(step.part(layout.adapters(), 7), (Numbers{2, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(step.part(layout.tables(), 7), (Numbers{1, 2, 3, 4, 7, 8, 9}));
  // Rows stand in the order of the chunks, wherever their tokens are.
  EXPECT_EQ(step.part(layout.rows(), 3), (Numbers{5, 6, 0}));
  // The tile that sees most comes first.
  EXPECT_EQ(step.part(layout.tiles(), 4), (Numbers{5, 2, 2, 3}));
}

TEST(Inputs, RowsFindTheirTokensAndThoseOfTheirChunk) {
  const std::vector<Token> prompt{10, 11, 12, 13, 14};
  const std::vector<Token> one{20};
  const std::vector<BlockId> blocks{7, 8, 9};
  const std::vector<Chunk> chunks{{.tokens = prompt, .first = 4, .blocks = blocks, .rows = 2},
                                  {.tokens = one, .first = 9, .blocks = blocks, .rows = 1},
                                  {.tokens = prompt, .first = 0, .blocks = blocks, .rows = 0},
                                  {.tokens = prompt, .first = 0, .blocks = blocks, .rows = 1}};
  Numbers tokens;
  Numbers firsts;
  Numbers counts;
  for (const RowPlace& place : row_places(chunks)) {
    tokens.push_back(place.token);
    firsts.push_back(place.chunk_first);
    counts.push_back(place.chunk_tokens);
  }
  const Packed step = packed(chunks);
  EXPECT_EQ(tokens, step.part(step.layout().rows(), 4)) << "where the step itself looks for them";
  EXPECT_EQ(firsts, (Numbers{1, 1, 0, 11}));
  EXPECT_EQ(counts, (Numbers{5, 5, 1, 5}));
}

TEST(Inputs, FillABucketWithTokensOfNobody) {
  const std::vector<Token> one{20};
  const std::vector<BlockId> blocks{5, 6};
  const Packed step = packed({{.tokens = one, .first = 4, .blocks = blocks, .rows = 1},
                              {.tokens = one, .first = 2, .blocks = blocks, .rows = 1}},
                             4);
  EXPECT_TRUE(step.counts.is_plain);
  const InputLayout layout = step.layout();
  EXPECT_EQ(step.part(layout.tokens(), 4), (Numbers{20, 20, 0, 0}));
  EXPECT_EQ(step.part(layout.positions(), 4), (Numbers{4, 2, -1, -1}));
  EXPECT_EQ(step.part(layout.table_places(), 4), (Numbers{0, 2, 0, 0}));
  EXPECT_EQ(step.part(layout.rows(), 4), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(step.part(layout.tables(), 3), (Numbers{5, 6, 5}));
}

TEST(Inputs, OfAnyStepWithinTheLimitsFit) {
  const Limits limits{
      .context = 64, .block_tokens = block_tokens, .blocks = 100, .step_tokens_max = 40, .step_rows_max = 8};
  const std::vector<Token> tokens(40);
  const std::vector<BlockId> blocks(16);
  std::vector<Chunk> chunks(8,
                            {.tokens = std::span(tokens).first(1), .first = 63, .blocks = blocks, .rows = 1});
  chunks.push_back({.tokens = std::span(tokens).first(32), .first = 32, .blocks = blocks});
  EXPECT_LE(input_bytes(count_step(chunks, block_tokens, 1)), input_bytes_max(limits));
}

TEST(Buckets, AreFewAndHaveRoomForAll) {
  for (const std::int32_t most : {1, 2, 7, 8, 9, 64, 100, 256, 4096}) {
    const auto sizes = bucket_sizes(most);
    EXPECT_EQ(sizes.front(), 1);
    EXPECT_EQ(sizes.back(), most);
    EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
    EXPECT_LE(sizes.size(), 40U);
    for (std::int32_t rows = 1; rows <= most; ++rows) {
      const std::int32_t bucket = bucket_of(sizes, rows);
      EXPECT_GE(bucket, rows);
      EXPECT_LE(bucket, rows <= 8 ? rows : rows + std::max(8, rows / 2));
    }
  }
}

TEST(Buckets, SplitAContextUntilAllMultiprocessorsWork) {
  EXPECT_EQ(splits_of(1, 4, 132, 131072), 64);  // as many as are worth putting together
  EXPECT_EQ(splits_of(1, 4, 132, 256), 4);      // no shorter than 64 positions
  EXPECT_EQ(splits_of(8, 4, 132, 131072), 9);
  EXPECT_EQ(splits_of(96, 4, 132, 131072), 1);
  EXPECT_EQ(splits_of(256, 4, 132, 131072), 4);  // a warp each
  EXPECT_EQ(splits_of(2000, 4, 132, 131072), 1);
  EXPECT_EQ(splits_of(1, 4, 132, 10), 1);
}

}  // namespace
}  // namespace tutti::serve::cuda
