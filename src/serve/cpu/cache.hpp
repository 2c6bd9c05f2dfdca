// Where keys and values lie: blocks of sixteen positions, of all layers and heads. A block's keys lie column
// by column and its values position by position, as kernel_attention.hpp reads them. Values, any thread.
#pragma once

#include <cstdint>

#include "learn/model/shape.hpp"
#include "serve/cpu/kernels.hpp"

namespace tutti::serve::cpu {

class Cache {
 public:
  Cache() = default;
  Cache(const model::Shape& shape, std::int64_t blocks, float* data)
      : head_size_(shape.head_size), heads_(shape.kv_heads), blocks_(blocks), data_(data) {}

  static std::int64_t floats_of_block(const model::Shape& shape) {
    const Cache one(shape, 1, nullptr);
    return one.block_stride() * shape.layers;
  }

  std::int64_t values_stride() const { return (head_size_ + panel_rows - 1) / panel_rows * panel_rows; }
  std::int64_t block_stride() const { return heads_ * head_stride(); }
  // Of block 0.
  float* keys(std::int64_t layer, std::int64_t head) const {
    return data_ + layer * blocks_ * block_stride() + head * head_stride();
  }
  float* values(std::int64_t layer, std::int64_t head) const {
    return keys(layer, head) + head_size_ * block_positions;
  }

 private:
  std::int64_t head_stride() const { return (head_size_ + values_stride()) * block_positions; }

  std::int64_t head_size_ = 0;
  std::int64_t heads_ = 0;
  std::int64_t blocks_ = 0;
  float* data_ = nullptr;
};

}  // namespace tutti::serve::cpu
