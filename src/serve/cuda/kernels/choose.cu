// Tokens of rows of logits: what serve/batch/choose.hpp says, step by step, a block of threads a row. No row
// is sorted: how far the order is kept is found digit by digit of the logits, as numbers whose order is that
// of the floats.
#include "serve/cuda/kernels/device_code.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr int choose_threads = 1024;
constexpr int choose_warps = choose_threads / warp;
constexpr float logit_limit = 1e30F;
constexpr float logit_sane = 1e20F;
constexpr int no_number = -2;
constexpr int no_choice = 0x7fffffff;

__device__ float finite(float logit) {
  if (!(logit > -logit_limit)) return -logit_limit;  // NaN is not larger
  return logit < logit_limit ? logit : logit_limit;
}

// Whether a largest logit is one that a row can be chosen by.
__device__ bool is_sane(float logit) { return logit > -logit_sane && logit < logit_sane; }

struct Best {
  float logit;
  int token;
};

__device__ Best better(const Best& a, const Best& b) {
  return b.logit > a.logit || (b.logit == a.logit && b.token < a.token) ? b : a;
}

__device__ Best best_of_warp(Best best) {
#pragma unroll
  for (int step = warp / 2; step > 0; step /= 2) {
    best = better(
        best, {__shfl_xor_sync(all_lanes, best.logit, step), __shfl_xor_sync(all_lanes, best.token, step)});
  }
  return best;
}

__global__ void __launch_bounds__(choose_threads) largest_kernel(LogitRows logits, std::int32_t* tokens) {
  __shared__ Best best_of_warps[choose_warps];
  wait_for_earlier();
  let_next_start();
  const float* const row = logits.data + blockIdx.x * logits.stride;
  const int thread = static_cast<int>(threadIdx.x);
  Best best{-INFINITY, no_choice};
  for (int at = thread * 4; at < logits.vocabulary; at += choose_threads * 4) {
    const float4 four = read4(row + at);
    const float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (at + i < logits.vocabulary) best = better(best, {finite(x[i]), at + i});
    }
  }
  best = best_of_warp(best);
  if (thread % warp == 0) best_of_warps[thread / warp] = best;
  __syncthreads();
  if (thread >= warp) return;
  best = best_of_warp(best_of_warps[thread]);
  if (thread == 0) tokens[blockIdx.x] = is_sane(best.logit) ? best.token : no_number;
}

// serve/batch/kernels.hpp: the same operations in the same order, none of them joined.
__device__ float exponential(float x) {
  constexpr float exponent_min = -64.0F;
  constexpr float rounder = 12582912.0F;
  if (x < exponent_min) return 0;
  const float whole = __fsub_rn(__fadd_rn(__fmul_rn(x, 1.44269504F), rounder), rounder);
  const float rest =
      __fsub_rn(__fsub_rn(x, __fmul_rn(whole, 0.693359375F)), __fmul_rn(whole, -2.12194440e-4F));
  float sum = 1.9875691500e-4F;
  sum = __fadd_rn(__fmul_rn(sum, rest), 1.3981999507e-3F);
  sum = __fadd_rn(__fmul_rn(sum, rest), 8.3334519073e-3F);
  sum = __fadd_rn(__fmul_rn(sum, rest), 4.1665795894e-2F);
  sum = __fadd_rn(__fmul_rn(sum, rest), 1.6666665459e-1F);
  sum = __fadd_rn(__fmul_rn(sum, rest), 5.0000001201e-1F);
  const float fraction = __fadd_rn(__fadd_rn(__fmul_rn(sum, __fmul_rn(rest, rest)), rest), 1.0F);
  const unsigned power = static_cast<unsigned>(static_cast<int>(whole) + 127) << 23U;
  return __fmul_rn(fraction, __uint_as_float(power));
}

// Numbers in the order of the floats; both zeros are one.
__device__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(__fadd_rn(x, 0.0F));
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

using Count = unsigned long long;

// A weight as a whole number, so that its sums do not depend on their order: within 2^-45 of the largest.
__device__ Count counted(float weight) {
  return static_cast<Count>(__double2ull_rn(static_cast<double>(weight) * 0x1p44));
}

// The tokens before and at a place of the order: larger logits, and of equal ones those up to a token.
struct Kept {
  unsigned key = 0;
  int last = no_choice;

  __device__ bool has(unsigned key_of_token, int token) const {
    return key_of_token > key || (key_of_token == key && token <= last);
  }
};

struct Shared {
  Count bins[256];
  Count counts[choose_warps];
  double sums[choose_warps];
  Best best[choose_warps];
  Count above;
  unsigned digit;
  int found;
  int found_warp;
  double before;
};

// A row as its sample sees it.
class Row {
 public:
  __device__ Row(const LogitRows& logits, const Sample& sample, Shared& shared)
      : row_(logits.data + sample.row * logits.stride),
        vocabulary_(logits.vocabulary),
        sample_(sample),
        shared_(shared) {
    Best best{-INFINITY, no_choice};
    for (int token = thread(); token < vocabulary_; token += choose_threads)
      best = better(best, {logit(token), token});
    best = best_of_warp(best);
    if (lane() == 0) shared_.best[own_warp()] = best;
    __syncthreads();
    largest_ = best_of_warp(shared_.best[lane()]).logit;
  }

  __device__ bool has_numbers() const { return is_sane(largest_); }
  __device__ float logit(int token) const { return __fdiv_rn(finite(row_[token]), sample_.temperature); }
  __device__ float weight(float logit) const { return exponential(__fsub_rn(logit, largest_)); }

  // The fewest first tokens of the order whose measures reach `target`. measure(key, logit, token) is the
  // same for equal logits that have one.
  template <class Measure>
  __device__ Kept first_that_reach(Count target, const Measure& measure) {
    unsigned prefix = 0;
    unsigned mask = 0;
    Count above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      for (int bin = thread(); bin < 256; bin += choose_threads) shared_.bins[bin] = 0;
      __syncthreads();
      for (int token = thread(); token < vocabulary_; token += choose_threads) {
        const float x = logit(token);
        const unsigned key = key_of(x);
        if ((key & mask) != prefix) continue;
        const Count size = measure(key, x, token);
        if (size > 0) atomicAdd(&shared_.bins[key >> shift & 0xffU], size);
      }
      __syncthreads();
      if (thread() == 0) {
        unsigned digit = 255;
        while (digit > 0 && above + shared_.bins[digit] < target) above += shared_.bins[digit--];
        shared_.digit = digit;
        shared_.above = above;
      }
      __syncthreads();
      prefix |= shared_.digit << shift;
      mask |= 0xffU << shift;
      above = shared_.above;
      __syncthreads();
    }
    return {prefix, last_equal(prefix, target - above, measure)};
  }

  // The kept ones from the lowest token up, until the sum of their weights is larger than its part of all.
  template <class Keeps>
  __device__ int draw(const Keeps& keeps) {
    const auto weighed = [&](int token) {
      const float x = logit(token);
      const float own = weight(x);
      return keeps(key_of(x), own, token) ? static_cast<double>(own) : 0.0;
    };
    double sum = 0;
    for (int token = begin() + lane(); token < end(); token += warp) sum += weighed(token);
    sum = sum_of_warp(sum);
    if (lane() == 0) shared_.sums[own_warp()] = sum;
    __syncthreads();
    double all = 0;
    for (int i = 0; i < choose_warps; ++i) all += shared_.sums[i];
    const double wanted = sample_.uniform * all;
    if (thread() == 0) {
      shared_.found_warp = 0;
      shared_.before = 0;
      double before = 0;
      for (int i = 0; i < choose_warps; ++i) {
        if (shared_.sums[i] == 0) continue;
        shared_.found_warp = i;  // the last that weighs something, if rounding lets none be enough
        shared_.before = before;
        before += shared_.sums[i];
        if (before > wanted) break;
      }
    }
    __syncthreads();
    if (own_warp() != shared_.found_warp) return -1;
    double so_far = shared_.before;
    int last = 0;
    for (int base = begin(); base < end(); base += warp) {
      const int token = base + lane();
      const double own = token < end() ? weighed(token) : 0.0;
      double scanned = own;
#pragma unroll
      for (int step = 1; step < warp; step *= 2) {
        const double other = __shfl_up_sync(all_lanes, scanned, step);
        if (lane() >= step) scanned += other;
      }
      const unsigned weighs = __ballot_sync(all_lanes, own > 0);
      if (weighs != 0) last = base + warp - 1 - __clz(static_cast<int>(weighs));
      const unsigned enough = __ballot_sync(all_lanes, own > 0 && so_far + scanned > wanted);
      if (enough != 0) return base + __ffs(static_cast<int>(enough)) - 1;
      so_far += __shfl_sync(all_lanes, scanned, warp - 1);
    }
    return last;
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int lane() { return thread() % warp; }
  __device__ static int own_warp() { return thread() / warp; }
  // Each warp has tokens side by side.
  __device__ int segment() const { return (vocabulary_ + choose_threads - 1) / choose_threads * warp; }
  __device__ int begin() const { return min(vocabulary_, own_warp() * segment()); }
  __device__ int end() const { return min(vocabulary_, (own_warp() + 1) * segment()); }

  __device__ static double sum_of_warp(double value) {
#pragma unroll
    for (int step = warp / 2; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
    return value;
  }

  // Of those with this key, the last that is needed until their measures reach `rest`.
  template <class Measure>
  __device__ int last_equal(unsigned wanted_key, Count rest, const Measure& measure) {
    Count own = 0;
    for (int token = begin() + lane(); token < end(); token += warp) {
      const float x = logit(token);
      const unsigned key = key_of(x);
      if (key == wanted_key) own += measure(key, x, token);
    }
#pragma unroll
    for (int step = warp / 2; step > 0; step /= 2) own += __shfl_xor_sync(all_lanes, own, step);
    if (lane() == 0) shared_.counts[own_warp()] = own;
    if (thread() == 0) shared_.found = no_choice;
    __syncthreads();
    Count so_far = 0;
    for (int i = 0; i < own_warp(); ++i) so_far += shared_.counts[i];
    if (so_far < rest && so_far + own >= rest) {  // one warp at most
      for (int base = begin(); base < end(); base += warp) {
        const int token = base + lane();
        Count scanned = 0;
        if (token < end()) {
          const float x = logit(token);
          const unsigned key = key_of(x);
          if (key == wanted_key) scanned = measure(key, x, token);
        }
#pragma unroll
        for (int step = 1; step < warp; step *= 2) {
          const Count other = __shfl_up_sync(all_lanes, scanned, step);
          if (lane() >= step) scanned += other;
        }
        const unsigned enough = __ballot_sync(all_lanes, so_far + scanned >= rest);
        if (enough != 0) {
          if (lane() == 0) shared_.found = base + __ffs(static_cast<int>(enough)) - 1;
          break;
        }
        so_far += __shfl_sync(all_lanes, scanned, warp - 1);
      }
    }
    __syncthreads();
    const int last = shared_.found;
    __syncthreads();
    return last;
  }

  const float* row_;
  int vocabulary_;
  Sample sample_;
  Shared& shared_;
  float largest_ = 0;
};

__device__ Count sum_of_block(Count own, Shared& shared) {
#pragma unroll
  for (int step = warp / 2; step > 0; step /= 2) own += __shfl_xor_sync(all_lanes, own, step);
  __syncthreads();
  if (threadIdx.x % warp == 0) shared.counts[threadIdx.x / warp] = own;
  __syncthreads();
  Count all = 0;
  for (int i = 0; i < choose_warps; ++i) all += shared.counts[i];
  __syncthreads();
  return all;
}

__global__ void __launch_bounds__(choose_threads)
    sample_kernel(LogitRows logits, const Sample* samples, std::int32_t* tokens) {
  __shared__ Shared shared;
  wait_for_earlier();
  let_next_start();
  const Sample sample = samples[blockIdx.x];
  Row row(logits, sample, shared);
  if (!row.has_numbers()) {  // all threads agree
    if (threadIdx.x == 0) tokens[blockIdx.x] = no_number;
    return;
  }
  Kept first_k;
  if (sample.top_k > 0 && sample.top_k < logits.vocabulary) {
    first_k =
        row.first_that_reach(static_cast<Count>(sample.top_k), [](unsigned, float, int) { return Count{1}; });
  }
  Kept first_p;
  if (sample.top_p < 1) {
    const auto measure = [&](unsigned key, float logit, int token) {
      return first_k.has(key, token) ? counted(row.weight(logit)) : Count{0};
    };
    Count own = 0;
    for (int token = static_cast<int>(threadIdx.x); token < logits.vocabulary; token += choose_threads) {
      const float logit = row.logit(token);
      own += measure(key_of(logit), logit, token);
    }
    const double all = static_cast<double>(sum_of_block(own, shared));
    first_p = row.first_that_reach(
        max(Count{1}, static_cast<Count>(__double2ull_ru(static_cast<double>(sample.top_p) * all))), measure);
  }
  const int token = row.draw([&](unsigned key, float weight, int at) {
    return first_k.has(key, at) && first_p.has(key, at) && weight >= sample.min_p;
  });
  if (token >= 0 && threadIdx.x % warp == 0) tokens[blockIdx.x] = token;
}

}  // namespace

void choose_largest(const LogitRows& logits, std::int32_t rows, std::int32_t* tokens, const Queue& queue) {
  launch(largest_kernel, dim3(static_cast<unsigned>(rows)), choose_threads, 0, queue, logits, tokens);
}

void sample(const LogitRows& logits, const Sample* samples, std::int32_t count, std::int32_t* tokens,
            const Queue& queue) {
  launch(sample_kernel, dim3(static_cast<unsigned>(count)), choose_threads, 0, queue, logits, samples,
         tokens);
}

}  // namespace tutti::serve::cuda
