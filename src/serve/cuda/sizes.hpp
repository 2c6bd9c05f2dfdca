// How wide the rows of a model are on the device: whole numbers of row_elements, the rest zeros. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "learn/model/shape.hpp"
#include "serve/cuda/kernels/kernels.hpp"

namespace tutti::serve::cuda {

constexpr std::int64_t padded(std::int64_t count) {
  return (count + row_elements - 1) / row_elements * row_elements;
}

// Some ways of a matrix product need room to compute in.
constexpr std::size_t product_workspace_bytes = std::size_t{32} << 20;

constexpr std::size_t bytes_of(Type type) { return type == Type::bf16 ? 2 : 4; }

struct Sizes {
  std::int64_t hidden = 0;
  std::int64_t queries = 0;
  std::int64_t qkv = 0;  // of queries, keys and values side by side
  std::int64_t width = 0;
  std::int64_t expert_width = 0;
  std::int64_t halves = 1;  // 2: a gate and what it lets through
  std::int64_t vocabulary = 0;

  explicit Sizes(const model::Shape& shape)
      : hidden(padded(shape.hidden)),
        queries(padded(shape.heads * shape.head_size)),
        qkv(padded((shape.heads + 2 * shape.kv_heads) * shape.head_size)),
        width(padded(shape.intermediate)),
        expert_width(padded(shape.experts.intermediate)),
        halves(shape.gated ? 2 : 1),
        vocabulary(padded(shape.vocabulary)) {}
};

// Tokens that a matrix product is computed for: few different numbers, so that few ways of computing them are
// looked for. What is beyond the step's own tokens is computed and not used.
constexpr std::int64_t product_tokens(std::int64_t tokens) {
  const std::int64_t step = tokens <= 16 ? 1 : tokens <= 64 ? 8 : tokens <= 512 ? 32 : 128;
  return (tokens + step - 1) / step * step;
}

}  // namespace tutti::serve::cuda
