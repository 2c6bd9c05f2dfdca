// The adapters of a model in the memory of a device: where each matrix lies, and the tables by which kernels
// find them. Pure but for what the pointers point to.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "learn/model/shape.hpp"
#include "serve/cuda/kernels/kernels.hpp"
#include "serve/lora/adapter.hpp"
#include "serve/model/arena.hpp"

namespace tutti::serve::cuda {

// Of each product of a layer, a table of all adapters; null where none changes it.
using AdapterTables = std::array<const LoraChange*, lora::products>;

// A matrix of an adapter, and where it belongs.
struct AdapterPiece {
  std::size_t adapter = 0;
  std::int64_t layer = 0;
  lora::Part part = lora::Part::queries;
  bool is_shrink = false;
  void* to = nullptr;
};

// Lays adapters out. Done twice: to count, and with the memory.
class AdapterLayout {
 public:
  AdapterLayout(const model::Shape& shape, Type type, std::span<const lora::Adapter> adapters, Arena arena);

  struct Table {
    LoraChange* to = nullptr;
    std::vector<LoraChange> changes;  // the first is nobody's
  };
  const std::vector<AdapterTables>& tables_of_layers() const { return layers_; }
  const std::vector<Table>& tables() const { return tables_; }
  const std::vector<AdapterPiece>& pieces() const { return pieces_; }
  std::size_t bytes() const { return arena_.used(); }

 private:
  const LoraChange* table(const model::Shape& shape, Type type, std::span<const lora::Adapter> adapters,
                          std::int64_t layer, lora::Product product);

  Arena arena_;
  std::vector<AdapterTables> layers_;
  std::vector<Table> tables_;
  std::vector<AdapterPiece> pieces_;
};

// The elements of a piece as they lie on the device: a row of A is as long as the values that it meets, B is
// turned.
Result<std::vector<float>> read_piece(const AdapterPiece& piece, const model::Shape& shape,
                                      std::span<const lora::Adapter> adapters);

}  // namespace tutti::serve::cuda
