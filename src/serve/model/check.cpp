#include "serve/model/check.hpp"

namespace tutti::serve {
namespace {

Result<> check_chunk(const Chunk& chunk, const Limits& limits) {
  const auto count = static_cast<std::int64_t>(chunk.tokens.size());
  if (chunk.adapter < 0 || chunk.adapter > limits.adapters)
    return invalid("there is no adapter " + std::to_string(chunk.adapter));
  if (chunk.first < 0 || chunk.first > limits.context - count)
    return invalid("positions from " + std::to_string(chunk.first) + " on are beyond the context");
  if (chunk.rows < 0 || chunk.rows > count) return invalid("it asks for more rows than it has tokens");
  const std::int64_t blocks = (chunk.first + count + limits.block_tokens - 1) / limits.block_tokens;
  if (static_cast<std::int64_t>(chunk.blocks.size()) < blocks) return invalid("it has too few blocks");
  for (std::int64_t at = 0; at < blocks; ++at) {
    const BlockId block = chunk.blocks[static_cast<std::size_t>(at)];
    if (block < 0 || block >= limits.blocks) return invalid("there is no block " + std::to_string(block));
  }
  if (chunk.follows >= 0 && count != 1) return invalid("one token follows a choice, and no more");
  for (const Token token : chunk.tokens) {
    if (token < 0 || token >= limits.vocabulary) return invalid("there is no token " + std::to_string(token));
  }
  return {};
}

}  // namespace

Result<> check_step(std::span<const Chunk> chunks, const Limits& limits) {
  std::size_t tokens = 0;
  std::size_t rows = 0;
  for (const Chunk& chunk : chunks) {
    if (auto fine = check_chunk(chunk, limits); !fine)
      return std::move(fine).error().within("a chunk of a step");
    tokens += chunk.tokens.size();
    rows += static_cast<std::size_t>(chunk.rows);
  }
  if (tokens > static_cast<std::size_t>(limits.step_tokens_max) ||
      rows > static_cast<std::size_t>(limits.step_rows_max))
    return invalid("a step has more tokens or rows than were reserved");
  return {};
}

}  // namespace tutti::serve
