// LayerNorm and RMSNorm. A row is read once and stays in the registers of the threads that share it: a warp
// for short rows, a block for long ones.
#include "learn/train/cuda/device_code.hpp"

namespace tutti::train::cuda {
namespace {

// Rows are dealt out to so many blocks, whatever the GPU, and each keeps its sums of the columns.
constexpr std::int64_t pieces_max = 256;

// `threads` share a row, each with so many chunks of it. Where rows are aligned, a chunk lies inside the row
// or outside, and less is to be asked.
template <int threads_, int chunks_, bool aligned_>
struct Sharing {
  static constexpr int threads = threads_;
  static constexpr int chunks = chunks_;
  static constexpr bool aligned = aligned_;
  static constexpr int block = threads_ < block_threads ? block_threads : threads_;
  static constexpr int rows = block / threads_;  // that a block has at a time

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % threads; }
  __device__ static std::int64_t first_row() {
    return static_cast<std::int64_t>(blockIdx.x) * rows + threadIdx.x / threads;
  }
  // Neighbouring threads have neighbouring chunks.
  __device__ static int column(int chunk) { return (chunk * threads + lane()) * width; }
};

template <class Work>
void with_sharing(std::int64_t columns, bool aligned, const Work& work) {
  if (columns > norm_columns_max) throw std::runtime_error("a norm on the GPU has at most 16384 columns");
  const auto chunks = static_cast<int>((columns + width - 1) / width);
  if (!aligned) return chunks <= 4 * warp ? work(Sharing<32, 4, false>{}) : work(Sharing<512, 4, false>{});
  if (chunks <= 1 * warp) return work(Sharing<32, 1, true>{});
  if (chunks <= 2 * warp) return work(Sharing<32, 2, true>{});
  if (chunks <= 3 * warp) return work(Sharing<32, 3, true>{});
  if (chunks <= 4 * warp) return work(Sharing<32, 4, true>{});
  if (chunks <= 256) return work(Sharing<256, 1, true>{});
  if (chunks <= 512) return work(Sharing<256, 2, true>{});
  if (chunks <= 1024) return work(Sharing<256, 4, true>{});
  return work(Sharing<512, 4, true>{});
}

// The part of a row of `columns` elements that begins at `column`.
template <class S, class T>
__device__ Chunk<T> fetch_part(const T* row, int column, int columns) {
  if constexpr (S::aligned) return column < columns ? fetch_vector(row + column) : Chunk<T>{};
  return fetch(row, column, columns, false);
}

template <class S, class T>
__device__ void put_part(T* row, int column, int columns, const Chunk<T>& chunk) {
  if constexpr (S::aligned) {
    if (column < columns) put_vector(row + column, chunk);
  } else {
    put(row, column, columns, false, chunk);
  }
}

template <class T>
__device__ const T* row_of(const void* matrix, std::int64_t row, int columns) {
  return static_cast<const T*>(matrix) + row * columns;
}

template <class T>
__device__ T* row_of(void* matrix, std::int64_t row, int columns) {
  return static_cast<T*>(matrix) + row * columns;
}

// ---- forward

// The row of x + added as the rest of the network will see it: rounded to its type.
template <class T, class S>
__device__ void read_sum(const NormForward& norm, std::int64_t row, Values (&values)[S::chunks]) {
  const auto columns = static_cast<int>(norm.size.columns);
  Chunk<T> x[S::chunks];
  Chunk<T> added[S::chunks];
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
    x[c] = fetch_part<S>(row_of<T>(norm.x, row, columns), S::column(c), columns);
    if (norm.added != nullptr) {
      added[c] = fetch_part<S>(row_of<T>(norm.added, row, columns), S::column(c), columns);
    }
  }
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
    values[c] = widen(x[c]);
    if (norm.added == nullptr) continue;
    const Values more = widen(added[c]);
#pragma unroll
    for (int i = 0; i < width; ++i) values[c].at[i] += more.at[i];
    const Chunk<T> rounded = narrow<T>(values[c]);
    put_part<S>(row_of<T>(norm.sum, row, columns), S::column(c), columns, rounded);
    values[c] = widen(rounded);
  }
}

template <class S>
__device__ float mean_of(const Values (&values)[S::chunks], float inverse) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
#pragma unroll
    for (int i = 0; i < width; ++i) sum += values[c].at[i];
  }
  return sum_over<S::threads>(sum) * inverse;
}

template <class S>
__device__ float variance_of(const Values (&values)[S::chunks], int columns, float mean, float inverse) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const int column = S::aligned ? S::column(c) : S::column(c) + i;
      const float off = column < columns ? values[c].at[i] - mean : 0.0F;
      sum += off * off;
    }
  }
  return sum_over<S::threads>(sum) * inverse;
}

template <class T, class S>
__global__ void __launch_bounds__(S::block) forward_kernel(NormForward norm) {
  const auto columns = static_cast<int>(norm.size.columns);
  const std::int64_t row = S::first_row();
  if (row >= norm.size.rows) return;
  const float inverse = 1.0F / static_cast<float>(columns);
  Values values[S::chunks];
  read_sum<T, S>(norm, row, values);
  const float mean = norm.mean != nullptr ? mean_of<S>(values, inverse) : 0.0F;
  const float scale = rsqrtf(variance_of<S>(values, columns, mean, inverse) + norm.epsilon);
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
    const int column = S::column(c);
    const Values weight = widen(fetch_part<S>(static_cast<const T*>(norm.weight), column, columns));
    Values bias{};
    if (norm.bias != nullptr) bias = widen(fetch_part<S>(static_cast<const T*>(norm.bias), column, columns));
#pragma unroll
    for (int i = 0; i < width; ++i) {
      values[c].at[i] = (values[c].at[i] - mean) * scale * weight.at[i] + bias.at[i];
    }
    put_part<S>(row_of<T>(norm.out, row, columns), column, columns, narrow<T>(values[c]));
  }
  if (S::lane() == 0) {
    if (norm.mean != nullptr) norm.mean[row] = mean;
    norm.scale[row] = scale;
  }
}

// ---- backward

// A thread's columns of the gradients of weight and bias, summed over the rows it has seen.
template <class S>
struct Sums {
  Values weight[S::chunks];
  Values bias[S::chunks];
};

template <class T, class S>
__device__ void backward_row(const NormBackward& norm, std::int64_t row, const Values (&weight)[S::chunks],
                             Sums<S>& sums) {
  const auto columns = static_cast<int>(norm.size.columns);
  Chunk<T> dy_raw[S::chunks];
  Chunk<T> x_raw[S::chunks];
  Chunk<T> added_raw[S::chunks];
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
    dy_raw[c] = fetch_part<S>(row_of<T>(norm.dy, row, columns), S::column(c), columns);
    x_raw[c] = fetch_part<S>(row_of<T>(norm.x, row, columns), S::column(c), columns);
    if (norm.added != nullptr) {
      added_raw[c] = fetch_part<S>(row_of<T>(norm.added, row, columns), S::column(c), columns);
    }
  }
  const float inverse = 1.0F / static_cast<float>(columns);
  const float mean = norm.mean != nullptr ? norm.mean[row] : 0.0F;
  const float scale = norm.scale[row];
  float gradients = 0;
  float projection = 0;
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
    const Values dy = widen(dy_raw[c]);
    const Values x = widen(x_raw[c]);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float normalized = (x.at[i] - mean) * scale;
      gradients += dy.at[i] * weight[c].at[i];
      projection += dy.at[i] * weight[c].at[i] * normalized;
      sums.weight[c].at[i] += dy.at[i] * normalized;
      sums.bias[c].at[i] += dy.at[i];
    }
  }
  // Without a mean there is nothing to take the mean's gradient out of.
  gradients = norm.mean != nullptr ? sum_over<S::threads>(gradients) * inverse : 0.0F;
  projection = sum_over<S::threads>(projection) * inverse;
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
    const Values dy = widen(dy_raw[c]);
    const Values x = widen(x_raw[c]);
    Values dx{};
    if (norm.added != nullptr) dx = widen(added_raw[c]);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float normalized = (x.at[i] - mean) * scale;
      dx.at[i] += scale * (dy.at[i] * weight[c].at[i] - gradients - normalized * projection);
    }
    put_part<S>(row_of<T>(norm.dx, row, columns), S::column(c), columns, narrow<T>(dx));
  }
}

// The rows that a block has at a time each leave a sum: these are added in their order, and stored from
// `column` on.
template <class S>
__device__ void store_piece(const Values& values, int column, int columns, float* piece) {
  if constexpr (S::rows == 1) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (column + i < columns) piece[column + i] = values.at[i];
    }
  } else {
    constexpr int across = S::threads * width;
    __shared__ float sums[S::rows][across];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < width; ++i) sums[threadIdx.x / S::threads][S::lane() * width + i] = values.at[i];
    __syncthreads();
    const int first = column - S::lane() * width;
    for (int at = static_cast<int>(threadIdx.x); at < across; at += S::block) {
      float sum = 0;
#pragma unroll
      for (int row = 0; row < S::rows; ++row) sum += sums[row][at];
      if (first + at < columns) piece[first + at] = sum;
    }
  }
}

// On a multiprocessor. Two have more loads under way than one, and are worth a few registers kept in memory.
template <class S>
constexpr int blocks_at_once = S::chunks <= 3 ? 2 : 1;

template <class T, class S>
__global__ void __launch_bounds__(S::block, blocks_at_once<S>) backward_kernel(NormBackward norm) {
  const auto columns = static_cast<int>(norm.size.columns);
  Values weight[S::chunks];
  Sums<S> sums{};
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
    weight[c] = widen(fetch_part<S>(static_cast<const T*>(norm.weight), S::column(c), columns));
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * S::rows;
  for (std::int64_t row = S::first_row(); row < norm.size.rows; row += step) {
    backward_row<T, S>(norm, row, weight, sums);
  }
  float* const piece = norm.scratch + static_cast<std::int64_t>(blockIdx.x) * 2 * columns;
#pragma unroll
  for (int c = 0; c < S::chunks; ++c) {
    store_piece<S>(sums.weight[c], S::column(c), columns, piece);
    if (norm.bias_gradient != nullptr) store_piece<S>(sums.bias[c], S::column(c), columns, piece + columns);
  }
}

}  // namespace

void norm_forward(const NormForward& norm, Stream stream) {
  const bool aligned =
      rows_aligned(norm.size.columns, {norm.x, norm.added, norm.weight, norm.bias, norm.sum, norm.out});
  if (norm.size.rows == 0) return;
  with_type(norm.type, [&](auto type) {
    with_sharing(norm.size.columns, aligned, [&](auto sharing) {
      using S = decltype(sharing);
      forward_kernel<decltype(type), S>
          <<<blocks_for(norm.size.rows, S::rows), S::block, 0, static_cast<cudaStream_t>(stream)>>>(norm);
    });
  });
  check_launch("norm");
}

std::int64_t norm_scratch(Size size) { return pieces_max * 2 * size.columns; }

void norm_backward(const NormBackward& norm, Stream stream) {
  const bool aligned = rows_aligned(norm.size.columns, {norm.dy, norm.x, norm.weight, norm.added, norm.dx});
  if (norm.size.rows == 0) return;
  std::int64_t pieces = pieces_max;
  with_type(norm.type, [&](auto type) {
    with_sharing(norm.size.columns, aligned, [&](auto sharing) {
      using S = decltype(sharing);
      const std::int64_t needed = blocks_for(norm.size.rows, S::rows);
      if (needed < pieces) pieces = needed;
      backward_kernel<decltype(type), S>
          <<<static_cast<unsigned>(pieces), S::block, 0, static_cast<cudaStream_t>(stream)>>>(norm);
    });
  });
  check_launch("norm_backward");
  add_pieces(norm.type,
             {pieces, norm.size.columns, 2 * norm.size.columns, norm.scratch, norm.weight_gradient,
              norm.bias_gradient},
             stream);
}

}  // namespace tutti::train::cuda
