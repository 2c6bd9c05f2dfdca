// The adapters of a model in the memory of this host: thin matrices of floats, packed as the kernels read
// them. Const after load(): any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "serve/cpu/matrix.hpp"
#include "serve/cpu/memory.hpp"
#include "serve/lora/adapter.hpp"

namespace tutti::serve::cpu {

// What an adapter adds to one product of a layer.
struct ProductChange {
  Matrix shrink;  // of its parts, one below the other, whole panels each
  struct Expand {
    Matrix matrix;
    std::int64_t first_panel = 0;   // of the product's
    std::int64_t first_column = 0;  // of what was shrunk
  };
  std::vector<Expand> expands;
};

struct Adapters {
  using Layer = std::array<ProductChange, lora::products>;
  std::vector<std::vector<Layer>> changes;  // by adapter, 1 being the first here, and by layer
  Memory memory;

  const ProductChange& change(std::int32_t adapter, std::int64_t layer, lora::Product product) const {
    return changes[static_cast<std::size_t>(adapter - 1)][static_cast<std::size_t>(layer)]
                  [static_cast<std::size_t>(product)];
  }

  // Numbers that a token is shrunk to at most.
  static std::int64_t width(std::span<const lora::Adapter> from);
  // What load() reserves.
  static std::size_t bytes(const model::Shape& shape, std::span<const lora::Adapter> from);
  static Result<Adapters> load(const model::Shape& shape, std::span<const lora::Adapter> from);
};

}  // namespace tutti::serve::cpu
