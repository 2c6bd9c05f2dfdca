// A LoRA adapter: for some matrices W of a model a pair of thin ones, so that its rows see W + scale·B·A. It
// lies in a folder as Hugging Face's PEFT writes it (adapter_config.json, adapter_model.safetensors), and all
// that the folder claims is checked against the model before anything is read. Immutable, any thread.
//
// A rank of a model that is split has of each pair what belongs to its rows or columns of W. What it adds is
// then part of a sum that the ranks make anyway:
//
//            queries, keys, values, gate, up      output, down
//   rank 0   its rows of B, all of A              all of B, its columns of A  ─▶ sum
//   rank 1   its rows of B, all of A              all of B, its columns of A  ─▶
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "learn/safetensors/file.hpp"
#include "serve/split/split.hpp"

namespace tutti::serve::lora {

inline constexpr std::size_t adapters_max = 64;  // of one model

// The matrices of a layer that can be adapted.
enum class Part { queries, keys, values, output, gate, up, down };
inline constexpr std::size_t parts = 7;

struct PartSize {
  std::int64_t rows = 0;  // that it gives
  std::int64_t columns = 0;
};
PartSize size_of(const model::Shape& shape, Part part);

// What computes one below the other reads the same numbers: one product of a layer, and its parts in their
// order.
enum class Product { qkv, output, up, down };
inline constexpr std::size_t products = 4;
std::span<const Part> parts_of(Product product);

class Adapter {
 public:
  static Result<Adapter> open(const std::string& folder, const model::Shape& shape);

  // What a rank has of it; this one is of the whole model.
  Adapter of_part(const model::Shape& whole, const serve::Part& part) const;

  std::int64_t rank() const { return rank_; }
  bool has(std::int64_t layer, Part part) const { return site(layer, part).shrink != nullptr; }
  // A: `rank` rows of the part's columns, as many as there is room for.
  Result<> read_shrink(std::int64_t layer, Part part, std::span<float> floats) const;
  // B times the scale: the part's rows of `rank` numbers, as many as there is room for.
  Result<> read_expand(std::int64_t layer, Part part, std::span<float> floats) const;

 private:
  struct Site {
    const safetensors::Entry* shrink = nullptr;  // in the file's header; null: it is as it was
    const safetensors::Entry* expand = nullptr;
    std::int64_t first_row = 0;     // of B, where several parts share one, or a rank has some of it
    std::int64_t first_column = 0;  // of A, where a rank has some of it
  };
  class Finder;

  const Site& site(std::int64_t layer, Part part) const {
    return sites_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(part)];
  }
  Result<> read(const safetensors::Entry& entry, std::int64_t first_row, std::span<float> floats) const;

  std::string folder_;
  std::shared_ptr<const safetensors::File> file_;
  std::int64_t rank_ = 0;
  double scale_ = 0;
  std::vector<std::array<Site, parts>> sites_;  // by layer
};

// The largest rank of all; 0 of none.
std::int64_t largest_rank(std::span<const Adapter> adapters);

}  // namespace tutti::serve::lora
