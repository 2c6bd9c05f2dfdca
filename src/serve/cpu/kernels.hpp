// The table of kernels that one instruction set provides; instructions.cpp chooses between the tables. Every
// kernel gives a token the same sums in the same order however many tokens it is computed with: what runs
// beside a request never changes its numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::serve::cpu {

enum class WeightType : std::uint8_t { f32, bf16, int8, int4 };
constexpr std::int64_t weight_types = 4;

// Rows of a matrix lie in panels of so many, column by column, so that one register holds a column of a
// panel.
constexpr std::int64_t panel_rows = 16;
// Quantised numbers share a scale within so many columns of a row.
constexpr std::int64_t block_columns = 32;
// Where a kernel takes weights without a sign, what stands for zero: int4 is stored so, int8 with its sign.
constexpr std::int32_t int8_zero = 128;
constexpr std::int32_t int4_zero = 8;
// Positions of one block of the cache: its keys lie column by column, as the rows of a panel do.
constexpr std::int64_t block_positions = 16;

// Panels of a packed matrix times the numbers of some tokens.
struct Product {
  const std::byte* panels;
  std::size_t panel_bytes;
  std::int64_t panel_count;
  std::int64_t columns;  // a multiple of block_columns where weights are quantised
  // The tokens' numbers, as floats or quantised, whichever the weights ask for.
  const float* values;
  std::int64_t values_stride;
  const std::int8_t* quants;    // `columns` a token
  const float* scales;          // one a block
  const std::int32_t* offsets;  // one a block: minus the zero of the weights times the sum of the quants
  std::int64_t tokens;
  float* out;  // where the first panel's rows of the first token belong
  std::int64_t out_stride;
  const float* bias;  // null: none
  bool add;           // to what is there
};

struct Quantize {
  const float* values;
  std::int64_t columns;  // a multiple of block_columns
  std::int32_t zero;     // of the weights
  std::int8_t* quants;
  float* scales;
  std::int32_t* offsets;
};

struct Normalize {
  const float* values;
  std::int64_t count;
  const float* scale;
  const float* bias;  // null: none
  float epsilon;
  float* out;
};

// The heads of one token that share their keys and values, over the positions [begin, end).
struct Attend {
  const float* queries;  // `heads` times head_size
  std::int64_t heads;
  std::int64_t head_size;
  std::int64_t values_stride;  // head_size, up to whole registers
  const float* keys;           // of the layer and the head, in block 0
  const float* values;
  std::int64_t block_stride;  // from one block to the next
  const std::int32_t* blocks;
  std::int64_t begin;
  std::int64_t end;
  float* scores;               // scratch: heads times scores_stride
  std::int64_t scores_stride;  // at least `end`, up to a whole block
  float* out;                  // heads times head_size
};

enum class Bend : std::uint8_t { gelu, gelu_tanh, silu };

struct Kernels {
  const char* name;
  void (*product[weight_types])(const Product& job);
  void (*quantize)(const Quantize& job);
  void (*normalize_rms)(const Normalize& job);
  void (*normalize_layer)(const Normalize& job);
  // out = bend(values), times `others` where there are any.
  void (*bend)(Bend how, const float* values, const float* others, float* out, std::int64_t count);
  // Turns the pairs (i, i + half) of a head.
  void (*rotate)(float* head, const float* cosines, const float* sines, std::int64_t half);
  void (*attend)(const Attend& job);
  void (*add_scaled)(const float* values, float factor, float* out, std::int64_t count);
};

const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& amx_kernels();

}  // namespace tutti::serve::cpu
