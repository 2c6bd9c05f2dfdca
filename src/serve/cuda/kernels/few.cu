// A matrix times a few rows: bound by the reading of the matrix. A block of threads has sixteen features at a
// time, its warps share the columns; the weights go straight from memory into the registers of the products,
// always two fetches ahead, from one tile of features into the next. The rows lie in shared memory, normed on
// their way there if that is wanted. The first weights are fetched before the kernel before this one has
// ended. Weights of fp8 are widened in registers, and a sum is scaled when it is whole.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int few_warps = 8;
constexpr int few_threads = few_warps * warp;
constexpr unsigned few_blocks = 2;  // on a multiprocessor: one fetches while the other finishes
constexpr int unit_columns = 64;    // that a warp takes at a time
constexpr int pieces_at_once = 4;   // of 64 bytes of a row, 16 of each of four lanes
constexpr int piece_bytes = 64;
constexpr int lane_bytes = 16;
constexpr int tile_features = 16;
constexpr int tile_rows = 8;  // the columns of one product of a warp
static_assert(row_elements % unit_columns == 0);
static_assert(few_rows_max <= tile_rows);

// What differs between matrices of bf16 and of fp8: half as many pieces make a unit, and a lane has twice as
// many numbers side by side.
template <bool is_fp8>
struct Kind {
  static constexpr int element_bytes = is_fp8 ? 1 : 2;
  static constexpr int unit_bytes = unit_columns * element_bytes;
  static constexpr int unit_pieces = unit_bytes / piece_bytes;
  static constexpr int units_at_once = pieces_at_once / unit_pieces;
  static constexpr int lane_columns = lane_bytes / element_bytes;
  static constexpr int piece_columns = piece_bytes / element_bytes;
  // Elements: lanes that read two rows side by side find them in different banks.
  static constexpr int row_padding = is_fp8 ? 8 : 32;
};

struct Fetched {
  uint4 low[pieces_at_once];   // row lane / 4 of the tile
  uint4 high[pieces_at_once];  // row lane / 4 + 8
};

// A lane's place in a matrix: the rows of a tile that it reads.
struct Weights {
  const unsigned char* low;
  const unsigned char* high;
};

template <bool is_fp8>
__device__ Weights weights_of(const FewProduct& product, std::int64_t tile, int lane) {
  const auto* const data = static_cast<const unsigned char*>(product.weights) + lane % 4 * lane_bytes;
  const std::int64_t row_bytes = product.columns * Kind<is_fp8>::element_bytes;
  const std::int64_t low = tile * (product.gated ? tile_features / 2 : tile_features) + lane / 4;
  const std::int64_t high = product.gated ? product.features / 2 + low : low + tile_features / 2;
  return {data + low * row_bytes, data + high * row_bytes};
}

// A step of a tile of features; a block of threads has every n-th tile.
struct Cursor {
  std::int64_t tile;
  int step;

  __device__ void advance(int steps) {
    if (++step < steps) return;
    step = 0;
    tile += gridDim.x;
  }
};

// The units of a step of a warp: first + 0, first + few_warps …
template <bool is_fp8>
__device__ void fetch(Fetched& fetched, const Weights& weights, int first, int units) {
  constexpr int unit_pieces = Kind<is_fp8>::unit_pieces;
#pragma unroll
  for (int piece = 0; piece < pieces_at_once; ++piece) {
    const int unit = first + piece / unit_pieces * few_warps;
    const int at = unit * Kind<is_fp8>::unit_bytes + piece % unit_pieces * piece_bytes;
    const bool is_there = unit < units;
    fetched.low[piece] = is_there ? fetch_once(weights.low + at) : make_uint4(0, 0, 0, 0);
    fetched.high[piece] = is_there ? fetch_once(weights.high + at) : make_uint4(0, 0, 0, 0);
  }
}

template <bool is_fp8>
__device__ void multiply(float (&sums)[4], const Fetched& fetched, const Bf16* row, int first, int units) {
  constexpr int unit_pieces = Kind<is_fp8>::unit_pieces;
#pragma unroll
  for (int piece = 0; piece < pieces_at_once; ++piece) {
    const int unit = first + piece / unit_pieces * few_warps;
    if (unit >= units) continue;
    const auto* const values = reinterpret_cast<const uint4*>(
        row + unit * unit_columns + piece % unit_pieces * Kind<is_fp8>::piece_columns);
    if constexpr (is_fp8) {
      multiply_codes(sums, fetched.low[piece], fetched.high[piece], values[0], values[1]);
    } else {
      multiply_wide(sums, fetched.low[piece], fetched.high[piece], values[0]);
    }
  }
}

// The sum over the threads of a row, which are whole warps; all threads of the block call it.
__device__ float row_sum(float value, int warps_of_row, float* sums) {
  value = warp_sum(value);
  if (warps_of_row == 1) return value;
  const int own_warp = static_cast<int>(threadIdx.x) / warp;
  __syncthreads();
  if (threadIdx.x % warp == 0) sums[own_warp] = value;
  __syncthreads();
  const int first = own_warp / warps_of_row * warps_of_row;
  value = 0;
  for (int i = 0; i < warps_of_row; ++i) value += sums[first + i];
  return value;
}

__device__ float4 read_stream(const float* data) { return __ldcg(reinterpret_cast<const float4*>(data)); }

// The norm of each row of the stream into shared memory.
__device__ void fill_normed(const FewProduct& product, Bf16* rows, int stride, float* sums) {
  const Norm& norm = product.norm;
  const int groups = product.rows <= 1 ? 1 : product.rows <= 2 ? 2 : product.rows <= 4 ? 4 : 8;
  const int threads = few_threads / groups;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const int columns = static_cast<int>(product.columns);
  const auto count = static_cast<float>(norm.columns);
  for (int base = 0; base < product.rows; base += groups) {
    const int row = base + static_cast<int>(threadIdx.x) / threads;
    const bool is_there = row < product.rows;
    const float* const from = product.stream + static_cast<std::int64_t>(is_there ? row : 0) * columns;
    float sum = 0;
    float squares = 0;
    for (int at = thread * 4; at < columns; at += threads * 4) {
      const float4 x = read_stream(from + at);
      sum += x.x + x.y + x.z + x.w;
      squares += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
    }
    float mean = 0;
    if (norm.bias != nullptr) {
      mean = row_sum(sum, threads / warp, sums) / count;
      squares = 0;
      for (int at = thread * 4; at < columns; at += threads * 4) {
        const float4 four = read_stream(from + at);
        const float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float off = at + j < static_cast<int>(norm.columns) ? x[j] - mean : 0.0F;
          squares += off * off;
        }
      }
    }
    const float inverse = rsqrtf(row_sum(squares, threads / warp, sums) / count + norm.epsilon);
    if (!is_there) continue;
    for (int at = thread * 4; at < columns; at += threads * 4) {
      const float4 x = read_stream(from + at);
      const float4 scale = read4(norm.scale + at);
      const float4 bias = norm.bias == nullptr ? make_float4(0, 0, 0, 0) : read4(norm.bias + at);
      write4(
          rows + row * stride + at,
          make_float4((x.x - mean) * inverse * scale.x + bias.x, (x.y - mean) * inverse * scale.y + bias.y,
                      (x.z - mean) * inverse * scale.z + bias.z, (x.w - mean) * inverse * scale.w + bias.w));
    }
  }
}

__device__ void fill_copied(const FewProduct& product, Bf16* rows, int stride) {
  const int chunks = static_cast<int>(product.columns) / 8;
  const auto* const from = static_cast<const uint4*>(product.values);
  for (int at = static_cast<int>(threadIdx.x); at < chunks * product.rows; at += few_threads) {
    *reinterpret_cast<uint4*>(rows + at / chunks * stride + at % chunks * 8) = __ldcg(from + at);
  }
}

// What the warps have summed of a tile: one number of one row and feature, in the order in which lanes have
// them.
__device__ float total_of(const float (*parts)[warp][4], int row, int feature) {
  const int lane = feature % 8 * 4 + row / 2;
  const int at = feature / 8 * 2 + row % 2;
  float total = 0;
#pragma unroll
  for (int i = 0; i < few_warps; ++i) total += parts[i][lane][at];
  return total;
}

__device__ void finish_tile(const FewProduct& product, std::int64_t tile, const float (*parts)[warp][4]) {
  const int features = product.gated ? tile_features / 2 : tile_features;
  for (int at = static_cast<int>(threadIdx.x); at < product.rows * features; at += few_threads) {
    const int row = at / features;
    const std::int64_t feature = tile * features + at % features;
    float value = total_of(parts, row, at % features);
    if (product.scales != nullptr) value *= product.scales[feature];
    if (product.bias != nullptr) value += product.bias[feature];
    value = bent(product.activation, value);
    if (product.gated) {
      float beside = total_of(parts, row, at % features + tile_features / 2);
      if (product.scales != nullptr) beside *= product.scales[product.features / 2 + feature];
      if (product.bias != nullptr) beside += product.bias[product.features / 2 + feature];
      value *= beside;
    }
    const std::int64_t to = row * product.out_stride + feature;
    if (product.added_to != nullptr) {
      product.added_to[to] = __ldcg(product.added_to + to) + value;
    } else if (product.floats != nullptr) {
      product.floats[to] = value;
    } else {
      static_cast<Bf16*>(product.out)[to] = static_cast<Bf16>(value);
    }
  }
}

// The same product of at most so many of its rows.
__device__ FewProduct rows_of(FewProduct product, int first, int count) {
  const auto behind = [&](auto* data, std::int64_t stride) {
    return data == nullptr ? nullptr : data + first * stride;
  };
  product.rows = min(count, product.rows - first);
  product.values = behind(static_cast<const Bf16*>(product.values), product.columns);
  product.stream = behind(product.stream, product.columns);
  product.out = behind(static_cast<Bf16*>(product.out), product.out_stride);
  product.added_to = behind(product.added_to, product.out_stride);
  product.floats = behind(product.floats, product.out_stride);
  return product;
}

// `rows_each`: of a block of threads; blockIdx.y counts them.
template <bool is_fp8>
__global__ void __launch_bounds__(few_threads, few_blocks) few_kernel(FewProduct product, int rows_each) {
  using Own = Kind<is_fp8>;
  if constexpr (is_fp8) product = rows_of(product, static_cast<int>(blockIdx.y) * rows_each, rows_each);
  unsigned char* const shared = dynamic_memory();
  __shared__ float sums_of_warps[few_warps];
  // Of two tiles of features in turn: one is finished while the next is summed.
  alignas(16) __shared__ float parts[2][few_warps][warp][4];
  auto* const rows = reinterpret_cast<Bf16*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int own_warp = static_cast<int>(threadIdx.x) / warp;
  const int units = static_cast<int>(product.columns) / unit_columns;
  constexpr int step_units = few_warps * Own::units_at_once;
  const int steps = (units + step_units - 1) / step_units;
  const int stride = static_cast<int>(product.columns) + Own::row_padding;
  const std::int64_t feature_tiles = product.features / tile_features;

  // Two fetches are under way, each into registers of its own: none is moved, because a move would wait for
  // it.
  Cursor ahead{static_cast<std::int64_t>(blockIdx.x), 0};
  const auto fetch_ahead = [&](Fetched& fetched) {
    if (ahead.tile < feature_tiles) {
      fetch<is_fp8>(fetched, weights_of<is_fp8>(product, ahead.tile, lane),
                    ahead.step * step_units + own_warp, units);
    }
    ahead.advance(steps);
  };
  Fetched even{};
  Fetched odd{};
  fetch_ahead(even);
  fetch_ahead(odd);
  let_next_start();
  wait_for_earlier();
  if (product.stream != nullptr) {
    fill_normed(product, rows, stride, sums_of_warps);
  } else {
    fill_copied(product, rows, stride);
  }
  __syncthreads();
  const Bf16* const values = rows + min(lane / 4, product.rows - 1) * stride + lane % 4 * Own::lane_columns;

  float sums[4] = {};
  Cursor at{static_cast<std::int64_t>(blockIdx.x), 0};
  int turn = 0;
  const auto take_step = [&](Fetched& fetched) {
    multiply<is_fp8>(sums, fetched, values, at.step * step_units + own_warp, units);
    fetch_ahead(fetched);
    if (at.step + 1 == steps) {
      write4(parts[turn][own_warp][lane], make_float4(sums[0], sums[1], sums[2], sums[3]));
#pragma unroll
      for (float& sum : sums) sum = 0;
      __syncthreads();
      finish_tile(product, at.tile, parts[turn]);
      turn ^= 1;
    }
    at.advance(steps);
  };
  while (at.tile < feature_tiles) {
    take_step(even);
    if (at.tile < feature_tiles) take_step(odd);
  }
}

std::size_t row_bytes(std::int32_t rows, std::int64_t columns) {
  constexpr int padding = Kind<false>::row_padding;  // the larger one
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns + padding) * sizeof(Bf16);
}

// Of the device that is current; what cannot be asked is 0.
unsigned asked(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess)
    return 0;
  return static_cast<unsigned>(value);
}

// What a block of threads may have for its rows, beside what the kernels have for themselves.
std::size_t row_bytes_max() {
  constexpr std::size_t parts_bytes = 2 * few_warps * warp * 4 * sizeof(float) + 1024;
  const std::size_t all = asked(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return all > parts_bytes ? all - parts_bytes : 0;
}

}  // namespace

bool fits_few(std::int32_t rows, std::int64_t columns, bool is_fp8) {
  return rows <= (is_fp8 ? few_fp8_rows_max : few_rows_max) &&
         row_bytes(is_fp8 ? 1 : rows, columns) <= row_bytes_max();
}

void multiply_few(const FewProduct& product, const Queue& queue) {
  const bool is_fp8 = product.scales != nullptr;
  const auto kernel = is_fp8 ? few_kernel<true> : few_kernel<false>;
  const std::size_t bytes_max = row_bytes_max();
  // Always the most: what a recorded step needs must not be taken back by a smaller one.
  static_cast<void>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes_max)));
  // As many rows at a time as there is room for, and no more passes than that takes, each of as many.
  const auto fitting = static_cast<int>(bytes_max / row_bytes(1, product.columns));
  const int most = is_fp8 ? min(max(fitting, 1), tile_rows) : product.rows;
  const int passes = (product.rows + most - 1) / most;
  const int rows_each = (product.rows + passes - 1) / passes;
  const auto tiles = static_cast<unsigned>(product.features / tile_features);
  const unsigned shares = max(1U, asked(cudaDevAttrMultiProcessorCount)) * few_blocks;
  launch(kernel, dim3(min(tiles, shares), static_cast<unsigned>(passes)), few_threads,
         row_bytes(rows_each, product.columns), queue, product, rows_each);
}

}  // namespace tutti::serve::cuda
