#include "serve/cpu/matrix.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "base/check.hpp"
#include "learn/safetensors/types.hpp"

namespace tutti::serve::cpu {
namespace {

constexpr std::array<std::string_view, weight_types> type_names{"f32", "bf16", "int8", "int4"};
constexpr std::size_t half_bytes = 2;
constexpr std::size_t group_bytes = panel_rows * 4;
// Of each panel: the kernels read whole lines.
constexpr std::size_t line_bytes = 64;

std::size_t block_bytes(WeightType type) {
  constexpr std::size_t numbers = panel_rows * block_columns;
  return type == WeightType::int4 ? numbers / 2 : numbers;
}

std::uint16_t half_of(float value) {
  std::uint16_t half = 0;
  safetensors::from_floats({&value, 1}, safetensors::Type::f16, std::as_writable_bytes(std::span(&half, 1)));
  return half;
}
float float_of_half_bits(std::uint16_t half) {
  float value = 0;
  safetensors::to_floats(safetensors::Type::f16, std::as_bytes(std::span(&half, 1)), {&value, 1});
  return value;
}

void pack_dense(const Matrix& matrix, std::byte* out, std::span<const float> rows, std::int64_t count) {
  std::array<float, panel_rows> column_values{};
  const std::size_t element_bytes = matrix.type == WeightType::bf16 ? half_bytes : sizeof(float);
  for (std::int64_t column = 0; column < matrix.columns; ++column) {
    for (std::int64_t row = 0; row < count; ++row) {
      column_values[static_cast<std::size_t>(row)] =
          rows[static_cast<std::size_t>(row * matrix.columns + column)];
    }
    std::byte* const to = out + static_cast<std::size_t>(column * panel_rows) * element_bytes;
    if (matrix.type == WeightType::f32) {
      std::memcpy(to, column_values.data(), sizeof column_values);
    } else {
      safetensors::from_floats(column_values, safetensors::Type::bf16, {to, panel_rows * half_bytes});
    }
  }
}

// Where a number of a block lies: groups of four columns, each a line of all rows. Two groups of int4 share a
// line.
struct Place {
  std::size_t byte = 0;
  bool is_high = false;
};
Place place_of(WeightType type, std::int64_t row, std::int64_t column) {
  std::int64_t group = column / 4;
  const bool is_high = type == WeightType::int4 && group >= 4;
  if (is_high) group -= 4;
  return {static_cast<std::size_t>(group) * group_bytes + static_cast<std::size_t>(row * 4 + column % 4),
          is_high};
}

// The number with the largest size decides on the scale: of int4 it becomes the -8 that there is one more of.
float scale_for(WeightType type, std::span<const float> values) {
  float largest = 0;
  for (const float value : values)
    if (std::abs(value) > std::abs(largest)) largest = value;
  return type == WeightType::int4 ? largest / -8 : std::abs(largest) / 127;
}

void pack_block(WeightType type, std::span<const float> values, std::int64_t row, std::byte* block,
                std::byte* scales) {
  const std::uint16_t half = half_of(scale_for(type, values));
  std::memcpy(scales + static_cast<std::size_t>(row) * half_bytes, &half, half_bytes);
  const float scale = float_of_half_bits(half);
  const float inverse = scale == 0 ? 0 : 1 / scale;
  const std::int32_t lowest = type == WeightType::int4 ? -8 : -127;
  const std::int32_t highest = type == WeightType::int4 ? 7 : 127;
  for (std::size_t column = 0; column < values.size(); ++column) {
    const auto nearest = static_cast<std::int32_t>(std::lrintf(values[column] * inverse));
    const std::int32_t kept = std::clamp(nearest, lowest, highest);
    const auto byte = static_cast<std::byte>(type == WeightType::int4 ? kept + int4_zero : kept);
    const Place place = place_of(type, row, static_cast<std::int64_t>(column));
    if (type == WeightType::int8) {
      block[place.byte] = byte;
    } else {
      block[place.byte] |= place.is_high ? byte << 4 : byte;
    }
  }
}

void pack_blocks(const Matrix& matrix, std::byte* out, std::span<const float> rows, std::int64_t count) {
  const std::int64_t blocks = whole_blocks(matrix.columns) / block_columns;
  std::byte* const scales = out + static_cast<std::size_t>(blocks) * block_bytes(matrix.type);
  std::array<float, block_columns> values{};
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = block * block_columns;
    const std::int64_t columns = std::min(block_columns, matrix.columns - first);
    for (std::int64_t row = 0; row < panel_rows; ++row) {
      values = {};
      if (row < count) {
        std::copy_n(rows.data() + row * matrix.columns + first, columns, values.data());
      }
      pack_block(matrix.type, values, row, out + static_cast<std::size_t>(block) * block_bytes(matrix.type),
                 scales + static_cast<std::size_t>(block * panel_rows) * half_bytes);
    }
  }
}

}  // namespace

std::string_view name_of(WeightType type) { return type_names[static_cast<std::size_t>(type)]; }

Result<WeightType> parse_weight_type(std::string_view word) {
  const auto found = std::find(type_names.begin(), type_names.end(), word);
  if (found == type_names.end()) {
    return invalid("'" + std::string(word) + "' is no type of weights").remedy("f32, bf16, int8 or int4");
  }
  return static_cast<WeightType>(found - type_names.begin());
}

bool is_quantized(WeightType type) { return zero_of(type) != 0; }

std::int32_t zero_of(WeightType type) {
  switch (type) {
    case WeightType::f32:
    case WeightType::bf16:
      return 0;
    case WeightType::int8:
      return int8_zero;
    case WeightType::int4:
      return int4_zero;
  }
  return 0;
}

std::int64_t whole_panels(std::int64_t rows) { return (rows + panel_rows - 1) / panel_rows * panel_rows; }
std::int64_t whole_blocks(std::int64_t columns) {
  return (columns + block_columns - 1) / block_columns * block_columns;
}

std::size_t Matrix::panel_bytes() const {
  const auto numbers = static_cast<std::size_t>(columns * panel_rows);
  const auto blocks = static_cast<std::size_t>(whole_blocks(columns) / block_columns);
  std::size_t raw = 0;
  switch (type) {
    case WeightType::f32:
      return numbers * sizeof(float);
    case WeightType::bf16:
      raw = numbers * half_bytes;
      break;
    case WeightType::int8:
    case WeightType::int4:
      raw = blocks * (block_bytes(type) + panel_rows * half_bytes);
      break;
  }
  return (raw + line_bytes - 1) / line_bytes * line_bytes;
}

void pack_panel(const Matrix& matrix, std::int64_t panel, std::span<const float> rows) {
  const std::int64_t count = static_cast<std::int64_t>(rows.size()) / matrix.columns;
  TUTTI_CHECK(panel < matrix.panels && count <= panel_rows &&
              static_cast<std::int64_t>(rows.size()) == count * matrix.columns);
  std::byte* const out = matrix.panel(panel);
  std::memset(out, 0, matrix.panel_bytes());
  if (is_quantized(matrix.type)) {
    pack_blocks(matrix, out, rows, count);
  } else {
    pack_dense(matrix, out, rows, count);
  }
}

void unpack_row(const Matrix& matrix, std::int64_t row, float* out) {
  const std::byte* const panel = matrix.panel(row / panel_rows);
  const std::int64_t in_panel = row % panel_rows;
  if (!is_quantized(matrix.type)) {
    const bool is_brain = matrix.type == WeightType::bf16;
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      const std::byte* const from = panel + static_cast<std::size_t>(column * panel_rows + in_panel) *
                                                (is_brain ? half_bytes : sizeof(float));
      std::uint32_t bits = 0;
      std::memcpy(&bits, from, is_brain ? half_bytes : sizeof(float));
      if (is_brain) bits <<= 16;
      std::memcpy(out + column, &bits, sizeof bits);
    }
    return;
  }
  const std::int64_t blocks = whole_blocks(matrix.columns) / block_columns;
  const std::byte* const scales = panel + static_cast<std::size_t>(blocks) * block_bytes(matrix.type);
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::uint16_t half = 0;
    std::memcpy(&half, scales + static_cast<std::size_t>(block * panel_rows + in_panel) * half_bytes,
                half_bytes);
    const float scale = float_of_half_bits(half);
    const std::int64_t first = block * block_columns;
    for (std::int64_t column = first; column < std::min(first + block_columns, matrix.columns); ++column) {
      const Place place = place_of(matrix.type, in_panel, column - first);
      const std::byte byte = panel[static_cast<std::size_t>(block) * block_bytes(matrix.type) + place.byte];
      const auto both = std::to_integer<std::int32_t>(byte);
      std::int32_t quant = both > 127 ? both - 256 : both;
      if (matrix.type == WeightType::int4) {
        quant = (place.is_high ? both >> 4 : both & 0xf) - int4_zero;
      }
      out[column] = scale * static_cast<float>(quant);
    }
  }
}

}  // namespace tutti::serve::cpu
