// What a step tells the device, as one piece of memory that is copied in one go:
//
//   token of each token | position | where its blocks begin | adapter | token of each row | tiles |
//   the blocks of all sequences
//
// Tokens that are alone in their chunk come first, in the order of their chunks; the tokens of longer chunks
// follow. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "serve/cuda/kernels/kernels.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve::cuda {

// Where the parts lie. It depends on the counts alone, so that a recorded step finds them again.
class InputLayout {
 public:
  InputLayout(std::int64_t tokens, std::int64_t rows, std::int64_t tiles);

  std::size_t tokens() const { return 0; }
  std::size_t positions() const { return tokens_bytes_; }
  std::size_t table_places() const { return 2 * tokens_bytes_; }
  std::size_t adapters() const { return 3 * tokens_bytes_; }
  std::size_t rows() const { return 4 * tokens_bytes_; }
  std::size_t tiles() const { return tiles_; }
  std::size_t tables() const { return tables_; }

 private:
  std::size_t tokens_bytes_;
  std::size_t tiles_;
  std::size_t tables_;
};

// How many there are of each.
struct StepCounts {
  std::int32_t tokens = 0;
  std::int32_t alone = 0;  // tokens that are alone in their chunk
  std::int32_t rows = 0;
  std::int32_t tiles = 0;
  std::int64_t blocks = 0;  // in all tables
  // Every chunk is one token whose row is wanted: such a step can be one that was recorded.
  bool is_plain = false;
};
StepCounts count_step(std::span<const Chunk> chunks, std::int32_t block_tokens, std::int32_t tile_tokens);

// Where the token of each row lies on the device, and the tokens of its chunk, which lie side by side.
struct RowPlace {
  std::int32_t token = 0;
  std::int32_t chunk_first = 0;
  std::int32_t chunk_tokens = 0;
};
std::vector<RowPlace> row_places(std::span<const Chunk> chunks);

// What the memory for inputs holds, and what a step takes of it.
std::size_t input_bytes_max(const Limits& limits);
std::size_t input_bytes(const StepCounts& counts);

// Fills the memory; the token of a chunk that follows the n-th choice is told as -1 - places[n]. `counts` may
// have more tokens and rows than the chunks have: the rest belongs to nobody. The bytes that were written.
std::size_t pack_step(std::span<const Chunk> chunks, const StepCounts& counts, std::int32_t block_tokens,
                      std::int32_t tile_tokens, std::span<std::byte> memory,
                      std::span<const std::int32_t> places = {});

}  // namespace tutti::serve::cuda
