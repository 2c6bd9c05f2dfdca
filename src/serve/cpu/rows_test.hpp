// Tokens that go through a model in tests, and what is compared of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "serve/cpu/kernels.hpp"
#include "serve/cpu/reference_test.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve::cpu {

inline constexpr std::uint64_t small_cache_bytes = 16 << 20;

inline std::vector<Token> made_tokens(const model::Shape& shape, std::size_t count, std::uint64_t seed) {
  std::vector<Token> tokens;
  for (std::size_t at = 0; at < count; ++at) {
    const double unit = (made_number(seed * 1000 + at) + 1) / 2;
    tokens.push_back(static_cast<Token>(unit * static_cast<double>(shape.vocabulary)));
  }
  return tokens;
}

// Every third block, from another one on for each sequence, backwards: nothing lies where it would by chance.
inline std::vector<BlockId> blocks_of(int sequence, std::size_t tokens) {
  std::vector<BlockId> blocks;
  const auto count = static_cast<BlockId>((tokens + block_positions - 1) / block_positions);
  for (BlockId at = 0; at < count; ++at) blocks.push_back(sequence * 10 + count - 1 - at);
  return blocks;
}

using Rows = std::vector<std::vector<float>>;

// How far apart two rows are, in relation to their length.
inline double distance(const std::vector<float>& row, const Doubles& expected) {
  double difference = 0;
  double length = 0;
  for (std::size_t at = 0; at < row.size(); ++at) {
    difference += std::pow(static_cast<double>(row[at]) - expected[at], 2);
    length += expected[at] * expected[at];
  }
  return std::sqrt(difference / length);
}

}  // namespace tutti::serve::cpu
