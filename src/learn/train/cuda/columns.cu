// Sums of columns, which are gradients of biases: of a matrix as it lies there, or of one that is written on
// the way, as GELU's backward pass does (its forward pass is here too). A block has some of the columns of a
// piece of the rows; the pieces are added afterwards.
#include "learn/train/cuda/device_code.hpp"

namespace tutti::train::cuda {
namespace {

constexpr int rows_at_once = block_threads / warp;  // of a block, a warp each
constexpr int columns_of_block = warp * width;
constexpr int batch = 4;  // rows whose loads are under way at once, for each warp

constexpr std::int64_t pieces_max = 128;
constexpr std::int64_t rows_per_piece_min = rows_at_once * batch;

std::int64_t pieces_of(std::int64_t rows) {
  const std::int64_t pieces = blocks_for(rows, rows_per_piece_min);
  return pieces < pieces_max ? pieces : pieces_max;
}

// Each operation fetches what it needs of some columns of a row, and then makes of it what is to be summed.
template <class T>
struct Plain {
  const T* x;
  std::int64_t columns;
  bool aligned;

  using Raw = Chunk<T>;
  __device__ Raw fetch_at(std::int64_t row, std::int64_t column) const {
    return fetch(x + row * columns, column, columns, aligned);
  }
  __device__ Values finish(const Raw& raw, std::int64_t, std::int64_t) const { return widen(raw); }
};

// GELU by tanh is x · sigmoid(2u).
constexpr float gelu_factor = 1.5957691216F;  // 2 · sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715F;

__device__ float gelu(float x) { return x * sigmoid(gelu_factor * (x + gelu_cubic * x * x * x)); }

__device__ float gelu_slope(float x) {
  const float s = sigmoid(gelu_factor * (x + gelu_cubic * x * x * x));
  return s + x * s * (1.0F - s) * gelu_factor * (1.0F + 3.0F * gelu_cubic * x * x);
}

template <class T>
struct ThroughGelu {
  const T* x;
  const T* dy;
  T* dx;
  std::int64_t columns;
  bool aligned;

  struct Raw {
    Chunk<T> x;
    Chunk<T> dy;
  };
  __device__ Raw fetch_at(std::int64_t row, std::int64_t column) const {
    return {fetch(x + row * columns, column, columns, aligned),
            fetch(dy + row * columns, column, columns, aligned)};
  }
  __device__ Values finish(const Raw& raw, std::int64_t row, std::int64_t column) const {
    const Values in = widen(raw.x);
    Values out = widen(raw.dy);
#pragma unroll
    for (int i = 0; i < width; ++i) out.at[i] *= gelu_slope(in.at[i]);
    write(dx + row * columns, column, columns, aligned, out);
    return out;
  }
};

template <class T>
struct Joined {
  const T* q;
  const T* k;
  const T* v;
  T* qkv;
  std::int64_t q_columns;
  std::int64_t kv_columns;
  bool aligned;

  using Raw = Chunk<T>;
  // A chunk lies in one of the three: where their widths are no multiple of it, nothing is `aligned`, and
  // each element looks for its own.
  __device__ const T* element(std::int64_t row, std::int64_t column) const {
    if (column < q_columns) return q + row * q_columns + column;
    column -= q_columns;
    return column < kv_columns ? k + row * kv_columns + column : v + row * kv_columns + column - kv_columns;
  }
  __device__ Raw fetch_at(std::int64_t row, std::int64_t column) const {
    const std::int64_t columns = q_columns + 2 * kv_columns;
    if (aligned && column + width <= columns) return fetch(element(row, column), 0, width, true);
    Values values{};
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (column + i < columns) values.at[i] = static_cast<float>(*element(row, column + i));
    }
    return narrow<T>(values);
  }
  __device__ Values finish(const Raw& raw, std::int64_t row, std::int64_t column) const {
    const std::int64_t columns = q_columns + 2 * kv_columns;
    put(qkv + row * columns, column, columns, aligned, raw);
    return widen(raw);
  }
};

template <class Operation>
__device__ Values sum_rows(std::int64_t begin, std::int64_t end, std::int64_t column,
                           const Operation& operation) {
  Values sums{};
  for (std::int64_t first = begin + threadIdx.x / warp; first < end; first += batch * rows_at_once) {
    typename Operation::Raw raw[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (first + i * rows_at_once < end) raw[i] = operation.fetch_at(first + i * rows_at_once, column);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (first + i * rows_at_once >= end) continue;
      const Values values = operation.finish(raw[i], first + i * rows_at_once, column);
#pragma unroll
      for (int j = 0; j < width; ++j) sums.at[j] += values.at[j];
    }
  }
  return sums;
}

template <class Operation>
__global__ void __launch_bounds__(block_threads) sum_pieces(Size size, Operation operation, float* scratch) {
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * columns_of_block;
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const std::int64_t column = first_column + lane * width;
  const std::int64_t begin = size.rows * blockIdx.y / gridDim.y;
  const std::int64_t end = size.rows * (blockIdx.y + 1) / gridDim.y;
  Values sums{};
  if (column < size.columns) sums = sum_rows(begin, end, column, operation);

  __shared__ float all[rows_at_once][columns_of_block];
#pragma unroll
  for (int i = 0; i < width; ++i) all[threadIdx.x / warp][lane * width + i] = sums.at[i];
  __syncthreads();
  static_assert(columns_of_block == block_threads, "a thread adds one column");
  float sum = 0;
#pragma unroll
  for (int row = 0; row < rows_at_once; ++row) sum += all[row][threadIdx.x];
  const std::int64_t mine = first_column + threadIdx.x;
  if (mine < size.columns) scratch[blockIdx.y * size.columns + mine] = sum;
}

template <class Operation>
void launch_sums(const char* what, Type type, Size size, const Operation& operation, void* sums,
                 float* scratch, Stream stream) {
  if (size.rows == 0 || size.columns == 0) return;
  const std::int64_t pieces = pieces_of(size.rows);
  const dim3 grid(blocks_for(size.columns, columns_of_block), static_cast<unsigned>(pieces));
  sum_pieces<<<grid, block_threads, 0, static_cast<cudaStream_t>(stream)>>>(size, operation, scratch);
  check_launch(what);
  add_pieces(type, {pieces, size.columns, size.columns, scratch, sums, nullptr}, stream);
}

// A warp's lanes have neighbouring columns; the warps of a block have every eighth piece.
template <class T>
__global__ void __launch_bounds__(block_threads) add_pieces_kernel(PieceSums pieces) {
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp + lane;
  const float* const from = pieces.sums + blockIdx.y * pieces.columns + column;
  float sum = 0;
  if (column < pieces.columns) {
#pragma unroll 4
    for (std::int64_t piece = threadIdx.x / warp; piece < pieces.pieces; piece += rows_at_once) {
      sum += from[piece * pieces.stride];
    }
  }
  __shared__ float sums[rows_at_once][warp];
  sums[threadIdx.x / warp][lane] = sum;
  __syncthreads();
  if (threadIdx.x >= warp || column >= pieces.columns) return;
  T* const target = static_cast<T*>(blockIdx.y == 0 ? pieces.target : pieces.second_target) + column;
  float total = static_cast<float>(*target);
#pragma unroll
  for (int part = 0; part < rows_at_once; ++part) total += sums[part][lane];
  *target = static_cast<T>(total);
}

template <class T>
struct Gelu {
  const T* x;
  T* y;
  bool aligned;

  __device__ void operator()(std::int64_t begin, std::int64_t count) const {
    Values values = read(x, begin, count, aligned);
#pragma unroll
    for (int i = 0; i < width; ++i) values.at[i] = gelu(values.at[i]);
    write(y, begin, count, aligned, values);
  }
};

}  // namespace

void add_pieces(Type type, const PieceSums& pieces, Stream stream) {
  const dim3 grid(blocks_for(pieces.columns, warp), pieces.second_target != nullptr ? 2 : 1);
  with_type(type, [&](auto value) {
    add_pieces_kernel<decltype(value)><<<grid, block_threads, 0, static_cast<cudaStream_t>(stream)>>>(pieces);
  });
  check_launch("sums of columns");
}

std::int64_t column_scratch(Size size) { return pieces_of(size.rows) * size.columns; }

void column_sums(Type type, Size size, const void* x, void* sums, float* scratch, Stream stream) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    const Plain<T> plain{static_cast<const T*>(x), size.columns, rows_aligned(size.columns, {x})};
    launch_sums("column_sums", type, size, plain, sums, scratch, stream);
  });
}

void gelu_forward(Type type, std::int64_t count, const void* x, void* y, Stream stream) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    launch_chunks("gelu", count,
                  Gelu<T>{static_cast<const T*>(x), static_cast<T*>(y), starts_at_16_bytes({x, y})}, stream);
  });
}

void gelu_backward(const GeluBackward& gelu, Stream stream) {
  with_type(gelu.type, [&](auto value) {
    using T = decltype(value);
    const std::int64_t columns = gelu.size.columns;
    const ThroughGelu<T> through{static_cast<const T*>(gelu.x), static_cast<const T*>(gelu.dy),
                                 static_cast<T*>(gelu.dx), columns,
                                 rows_aligned(columns, {gelu.x, gelu.dy, gelu.dx})};
    launch_sums("gelu_backward", gelu.type, gelu.size, through, gelu.bias_gradient, gelu.scratch, stream);
  });
}

void join(const Joining& j, Stream stream) {
  with_type(j.type, [&](auto value) {
    using T = decltype(value);
    const bool aligned = j.q_columns % width == 0 && rows_aligned(j.kv_columns, {j.q, j.k, j.v, j.qkv});
    const Joined<T> joined{static_cast<const T*>(j.q),
                           static_cast<const T*>(j.k),
                           static_cast<const T*>(j.v),
                           static_cast<T*>(j.qkv),
                           j.q_columns,
                           j.kv_columns,
                           aligned};
    launch_sums("join", j.type, {j.rows, j.q_columns + 2 * j.kv_columns}, joined, j.bias_gradient, j.scratch,
                stream);
  });
}

}  // namespace tutti::train::cuda
