// A matrix of weights as the kernels read it: panels of sixteen rows, column by column, as floats or
// quantised in blocks of 32 columns with a scale each. It points into memory that somebody else owns. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "serve/cpu/kernels.hpp"

namespace tutti::serve::cpu {

std::string_view name_of(WeightType type);
Result<WeightType> parse_weight_type(std::string_view word);
bool is_quantized(WeightType type);
// What stands for zero where a kernel takes weights without a sign; 0 where weights are floats.
std::int32_t zero_of(WeightType type);

// Up to whole panels and blocks.
std::int64_t whole_panels(std::int64_t rows);
std::int64_t whole_blocks(std::int64_t columns);

struct Matrix {
  WeightType type = WeightType::f32;
  std::int64_t panels = 0;
  std::int64_t columns = 0;
  std::byte* data = nullptr;

  std::int64_t rows() const { return panels * panel_rows; }
  std::size_t panel_bytes() const;
  std::size_t bytes() const { return static_cast<std::size_t>(panels) * panel_bytes(); }
  std::byte* panel(std::int64_t index) const {
    return data + static_cast<std::size_t>(index) * panel_bytes();
  }
};

// Packs up to sixteen rows, `columns` floats each, side by side; rows that are missing are zeros.
void pack_panel(const Matrix& matrix, std::int64_t panel, std::span<const float> rows);
// One row, as near as it was kept.
void unpack_row(const Matrix& matrix, std::int64_t row, float* out);

}  // namespace tutti::serve::cpu
