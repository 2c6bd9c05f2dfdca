// Cross-entropy, a block a row. A row of logits is read twice, and the second time most of it is still in the
// GPU's cache: few rows are under way at once.
#include <cfloat>

#include "learn/train/cuda/device_code.hpp"

namespace tutti::train::cuda {
namespace {

constexpr int row_threads = 512;
constexpr int batch = 4;  // chunks whose loads are under way at once, for each thread

// The sum of exp(logit − maximum) over the logits seen so far.
struct Softmax {
  float maximum = -FLT_MAX;
  float sum = 0;
};

__device__ Softmax merged(const Softmax& a, const Softmax& b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  return {maximum, a.sum * __expf(a.maximum - maximum) + b.sum * __expf(b.maximum - maximum)};
}

__device__ Softmax merged_over_block(Softmax softmax) {
  const auto over_warp = [](Softmax own) {
#pragma unroll
    for (int step = warp / 2; step > 0; step /= 2) {
      own = merged(own, {__shfl_xor_sync(~0U, own.maximum, step), __shfl_xor_sync(~0U, own.sum, step)});
    }
    return own;
  };
  constexpr int warps = row_threads / warp;
  __shared__ float maxima[warps];
  __shared__ float sums[warps];
  softmax = over_warp(softmax);
  const int lane = static_cast<int>(threadIdx.x) % warp;
  if (lane == 0) {
    maxima[threadIdx.x / warp] = softmax.maximum;
    sums[threadIdx.x / warp] = softmax.sum;
  }
  __syncthreads();
  return over_warp(lane < warps ? Softmax{maxima[lane], sums[lane]} : Softmax{});
}

__device__ float max_over_block(float value) {
  Softmax softmax;
  softmax.maximum = value;
  return merged_over_block(softmax).maximum;
}

// A row of logits with what is known of it.
template <class T>
struct Row {
  T* logits;
  std::int64_t columns;
  std::int64_t valid;
  std::int64_t target;  // in this slice; < 0 or ≥ valid: in another one
  bool aligned;

  __device__ Row(const Logits& all, bool aligned_)
      : logits(static_cast<T*>(all.logits) + blockIdx.x * all.size.columns),
        columns(all.size.columns),
        valid(all.valid),
        target(all.targets == nullptr ? -1 : all.targets[blockIdx.x] - all.first),
        aligned(aligned_) {}

  __device__ bool has_target() const { return target >= 0 && target < valid; }
  __device__ float target_logit() const { return has_target() ? static_cast<float>(logits[target]) : 0.0F; }

  // each(first column, values) for this thread's share of the first `end` columns. What lies beyond `valid`
  // is as small as can be.
  template <class Each>
  __device__ void for_chunks(std::int64_t end, const Each& each) const {
    for (std::int64_t first = threadIdx.x * width; first < end; first += batch * row_threads * width) {
      Chunk<T> raw[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        raw[i] = fetch(logits, first + i * row_threads * width, columns, aligned);
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const std::int64_t column = first + i * row_threads * width;
        if (column >= end) continue;
        Values values = widen(raw[i]);
        if (column + width > valid) {
#pragma unroll
          for (int j = 0; j < width; ++j) values.at[j] = column + j < valid ? values.at[j] : -FLT_MAX;
        }
        each(column, values);
      }
    }
  }

  __device__ float maximum() const {
    float largest = -FLT_MAX;
    for_chunks(valid, [&](std::int64_t, const Values& values) {
#pragma unroll
      for (int i = 0; i < width; ++i) largest = fmaxf(largest, values.at[i]);
    });
    return max_over_block(largest);
  }

  // Maximum and sum in one pass: when a larger logit comes, the sum so far shrinks.
  __device__ Softmax softmax() const {
    Softmax own;
    for_chunks(valid, [&](std::int64_t, const Values& values) {
      float largest = own.maximum;
#pragma unroll
      for (int i = 0; i < width; ++i) largest = fmaxf(largest, values.at[i]);
      own.sum *= __expf(own.maximum - largest);
      own.maximum = largest;
#pragma unroll
      for (int i = 0; i < width; ++i) own.sum += __expf(values.at[i] - largest);
    });
    return merged_over_block(own);
  }

  __device__ float exponential_sum(float largest) const {
    Softmax own{largest, 0};
    for_chunks(valid, [&](std::int64_t, const Values& values) {
#pragma unroll
      for (int i = 0; i < width; ++i) own.sum += __expf(values.at[i] - largest);
    });
    return merged_over_block(own).sum;
  }

  __device__ void turn_into_gradient(const Softmax& softmax, float factor) const {
    const float scale = factor / softmax.sum;
    for_chunks(columns, [&](std::int64_t column, Values values) {
#pragma unroll
      for (int i = 0; i < width; ++i) {
        values.at[i] =
            __expf(values.at[i] - softmax.maximum) * scale - (column + i == target ? factor : 0.0F);
      }
      write(logits, column, columns, aligned, values);
    });
  }
};

template <class T>
__global__ void __launch_bounds__(row_threads) maxima_kernel(Logits logits, bool aligned, float* maxima) {
  const float maximum = Row<T>(logits, aligned).maximum();
  if (threadIdx.x == 0) maxima[blockIdx.x] = maximum;
}

template <class T>
__global__ void __launch_bounds__(row_threads)
    sums_kernel(Logits logits, bool aligned, const float* maxima, float* sums, float* target_logits) {
  const Row<T> row(logits, aligned);
  const float maximum = maxima[blockIdx.x];
  const float sum = row.exponential_sum(maximum);
  if (threadIdx.x != 0) return;
  sums[blockIdx.x] = sum;
  target_logits[blockIdx.x] = row.has_target() ? row.target_logit() - maximum : 0.0F;
}

template <class T>
__global__ void __launch_bounds__(row_threads)
    gradient_kernel(Logits logits, bool aligned, const float* maxima, const float* sums, float factor) {
  Row<T>(logits, aligned).turn_into_gradient({maxima[blockIdx.x], sums[blockIdx.x]}, factor);
}

template <class T>
__global__ void __launch_bounds__(row_threads, 2)
    cross_entropy_kernel(Logits logits, bool aligned, float factor, bool with_gradients, float* losses) {
  const Row<T> row(logits, aligned);
  // Read before the first thread overwrites it, which is after the block has met for the sum.
  const float target_logit = row.target_logit();
  const Softmax softmax = row.softmax();
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(softmax.sum) + softmax.maximum - target_logit;
  if (with_gradients) row.turn_into_gradient(softmax, factor);
}

template <class Launch>
void launch_logits(const char* what, const Logits& logits, const Launch& launch) {
  if (logits.size.rows == 0) return;
  const bool aligned = rows_aligned(logits.size.columns, {logits.logits});
  with_type(logits.type,
            [&](auto value) { launch(value, static_cast<unsigned>(logits.size.rows), aligned); });
  check_launch(what);
}

}  // namespace

void row_maxima(const Logits& logits, float* maxima, Stream stream) {
  launch_logits("row_maxima", logits, [&](auto value, unsigned rows, bool aligned) {
    maxima_kernel<decltype(value)>
        <<<rows, row_threads, 0, static_cast<cudaStream_t>(stream)>>>(logits, aligned, maxima);
  });
}

void exponential_sums(const Logits& logits, const float* maxima, float* sums, float* target_logits,
                      Stream stream) {
  launch_logits("exponential_sums", logits, [&](auto value, unsigned rows, bool aligned) {
    sums_kernel<decltype(value)><<<rows, row_threads, 0, static_cast<cudaStream_t>(stream)>>>(
        logits, aligned, maxima, sums, target_logits);
  });
}

void cross_entropy_gradient(const Logits& logits, const float* maxima, const float* sums, float factor,
                            Stream stream) {
  launch_logits("cross_entropy_gradient", logits, [&](auto value, unsigned rows, bool aligned) {
    gradient_kernel<decltype(value)>
        <<<rows, row_threads, 0, static_cast<cudaStream_t>(stream)>>>(logits, aligned, maxima, sums, factor);
  });
}

void cross_entropy(const Logits& logits, float factor, bool with_gradients, float* losses, Stream stream) {
  launch_logits("cross_entropy", logits, [&](auto value, unsigned rows, bool aligned) {
    cross_entropy_kernel<decltype(value)><<<rows, row_threads, 0, static_cast<cudaStream_t>(stream)>>>(
        logits, aligned, factor, with_gradients, losses);
  });
}

}  // namespace tutti::train::cuda
