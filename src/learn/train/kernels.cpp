#include "learn/train/kernels.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti::train::kernels {
namespace {

// The inner loops are compiled for several generations of CPUs and chosen when the program starts.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define TUTTI_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define TUTTI_CLONES
#endif

// Sums over rows are taken in this many pieces, whatever the number of threads.
constexpr std::int64_t pieces_max = 16;
constexpr std::int64_t elements_per_task = 16'384;

std::int64_t grain(std::int64_t columns) {
  return std::max<std::int64_t>(1, elements_per_task / std::max<std::int64_t>(columns, 1));
}

template <class F>
void for_rows(Size size, const F& each) {
  at::parallel_for(0, size.rows, grain(size.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) each(row);
  });
}

template <class F>
void for_elements(std::int64_t count, const F& each) {
  at::parallel_for(0, count, elements_per_task, each);
}

// What a loop of several generations calls must be part of it: the compiler inlines no ordinary function
// there, not even one of the standard library. Hence the builtins.
#define TUTTI_INLINE __attribute__((always_inline)) inline

// e^x to within 2 units of the last place: 2^n · e^r with |r| ≤ ln 2 / 2, the second by a polynomial. Written
// out so that the compiler can put it into vector registers. NaN stays NaN.
TUTTI_INLINE float exponential(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float n = __builtin_floorf(x * 1.44269504F + 0.5F);
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return p * __builtin_bit_cast(float, (static_cast<std::int32_t>(n) + 127) << 23);
}

TUTTI_INLINE float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

// GELU by tanh is x · sigmoid(2u).
constexpr float gelu_factor = 1.5957691216F;  // 2 · sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715F;

TUTTI_CLONES void gelu_loop(std::int64_t count, const float* x, float* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = x[i];
    y[i] = v * sigmoid(gelu_factor * (v + gelu_cubic * v * v * v));
  }
}

TUTTI_CLONES void gelu_backward_loop(std::int64_t count, const float* x, const float* dy, float* dx) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = x[i];
    const float s = sigmoid(gelu_factor * (v + gelu_cubic * v * v * v));
    const float slope = gelu_factor * (1.0F + 3.0F * gelu_cubic * v * v);
    dx[i] = dy[i] * (s + v * s * (1.0F - s) * slope);
  }
}

TUTTI_CLONES void swiglu_row(std::int64_t columns, const float* x, float* y) {
  for (std::int64_t i = 0; i < columns; ++i) y[i] = x[i] * sigmoid(x[i]) * x[columns + i];
}

TUTTI_CLONES void swiglu_backward_row(std::int64_t columns, const float* x, const float* dy, float* dx) {
  for (std::int64_t i = 0; i < columns; ++i) {
    const float gate = x[i];
    const float up = x[columns + i];
    const float s = sigmoid(gate);
    const float gradient = dy[i];
    dx[i] = gradient * up * s * (1.0F + gate * (1.0F - s));
    dx[columns + i] = gradient * gate * s;
  }
}

TUTTI_CLONES void add_loop(std::int64_t count, const float* x, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += x[i];
}

TUTTI_CLONES float sum_row(std::int64_t columns, const float* x) {
  float sum = 0;
  for (std::int64_t i = 0; i < columns; ++i) sum += x[i];
  return sum;
}

TUTTI_CLONES float squares_row(std::int64_t columns, const float* x, float mean) {
  float sum = 0;
  for (std::int64_t i = 0; i < columns; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

TUTTI_CLONES void normalize_row(std::int64_t columns, const float* x, float mean, float scale,
                                const float* weight, const float* bias, float* out) {
  if (bias != nullptr) {
    for (std::int64_t i = 0; i < columns; ++i) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
  } else {
    for (std::int64_t i = 0; i < columns; ++i) out[i] = x[i] * scale * weight[i];
  }
}

TUTTI_CLONES void add_into_row(std::int64_t columns, const float* x, const float* added, float* sum) {
  for (std::int64_t i = 0; i < columns; ++i) sum[i] = x[i] + added[i];
}

struct RowSums {
  float gradients = 0;   // of dy · weight
  float projection = 0;  // of dy · weight · normalized x
};

TUTTI_CLONES RowSums norm_backward_sums(std::int64_t columns, const float* dy, const float* x,
                                        const float* weight, float mean, float scale) {
  float gradients = 0;
  float projection = 0;
  for (std::int64_t i = 0; i < columns; ++i) {
    const float g = dy[i] * weight[i];
    gradients += g;
    projection += g * (x[i] - mean) * scale;
  }
  return {gradients, projection};
}

struct NormRow {
  const float* dy;
  const float* x;
  const float* weight;
  const float* added;
  float* dx;
  float* weight_gradient;
  float* bias_gradient;  // null for RMSNorm
  float mean;
  float scale;
};

TUTTI_CLONES void norm_backward_row(std::int64_t columns, const NormRow& row, float gradients,
                                    float projection) {
  const float mean = row.mean;
  const float scale = row.scale;
  for (std::int64_t i = 0; i < columns; ++i) {
    const float normalized = (row.x[i] - mean) * scale;
    row.weight_gradient[i] += row.dy[i] * normalized;
    row.dx[i] = scale * (row.dy[i] * row.weight[i] - gradients - normalized * projection);
  }
  if (row.bias_gradient != nullptr) add_loop(columns, row.dy, row.bias_gradient);
  if (row.added != nullptr) add_loop(columns, row.added, row.dx);
}

TUTTI_CLONES void rotate_head(std::int64_t half, const float* cosine, const float* sine, float sign,
                              float* x) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    x[i] = a * cosine[i] - sign * b * sine[i];
    x[half + i] = b * cosine[i] + sign * a * sine[i];
  }
}

TUTTI_CLONES float max_row(std::int64_t columns, const float* x) {
  float largest = x[0];
  for (std::int64_t i = 1; i < columns; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

TUTTI_CLONES float exponential_row(std::int64_t columns, float maximum, float* x) {
  float sum = 0;
  for (std::int64_t i = 0; i < columns; ++i) {
    x[i] = exponential(x[i] - maximum);
    sum += x[i];
  }
  return sum;
}

TUTTI_CLONES void scale_row(std::int64_t columns, float factor, float* x) {
  for (std::int64_t i = 0; i < columns; ++i) x[i] *= factor;
}

TUTTI_CLONES float dot_row(std::int64_t columns, const float* x, const float* y) {
  float sum = 0;
  for (std::int64_t i = 0; i < columns; ++i) sum += x[i] * y[i];
  return sum;
}

// dS = P · (dP − sum) in place of dP.
TUTTI_CLONES void softmax_backward_row(std::int64_t columns, float sum, float factor, const float* p,
                                       float* dp) {
  for (std::int64_t i = 0; i < columns; ++i) dp[i] = factor * p[i] * (dp[i] - sum);
}

TUTTI_CLONES double squares_loop(std::int64_t count, const float* x) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

TUTTI_CLONES void adamw_loop(std::int64_t count, const AdamW& o, const float* gradient, float* weight,
                             float* first, float* second) {
  const float keep = 1.0F - o.learning_rate * o.decay;
  const float step = o.learning_rate / o.correction1;
  const float unbias = 1.0F / std::sqrt(o.correction2);
  const float beta1 = o.beta1;
  const float beta2 = o.beta2;
  const float scale = o.gradient_scale;
  const float epsilon = o.epsilon;
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    first[i] = beta1 * first[i] + (1.0F - beta1) * g;
    second[i] = beta2 * second[i] + (1.0F - beta2) * g * g;
    weight[i] = keep * weight[i] - step * first[i] / (__builtin_sqrtf(second[i]) * unbias + epsilon);
  }
}

// Runs `each(piece, begin, end)` over pieces of the rows whose borders depend on the rows alone.
template <class F>
std::int64_t for_pieces(std::int64_t rows, const F& each) {
  const std::int64_t pieces = std::min(rows, pieces_max);
  at::parallel_for(0, pieces, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t piece = first; piece < last; ++piece) {
      each(piece, rows * piece / pieces, rows * (piece + 1) / pieces);
    }
  });
  return pieces;
}

// ---- matrix products on pieces of larger matrices

// A piece of a larger matrix, as libtorch's matrix product takes it.
at::Tensor piece(const float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return at::from_blob(const_cast<float*>(data), {rows, columns}, {stride, 1}, at::kFloat);
}

// c = alpha · a b + beta · c
void multiply(const at::Tensor& a, const at::Tensor& b, float alpha, float beta, at::Tensor c) {
  at::addmm_out(c, c, a, b, beta, alpha);
}

// Queries are taken in tiles, each against the keys from the first that its first row sees up to its last
// row: what lies above the diagonal or before the window is hardly computed.
constexpr std::int64_t tile = 128;

// Row i of the tile that begins at row `begin` sees the keys up to its own position, as far as its window
// reaches back. The scores are those of the keys from `first` on.
void softmax_rows(const Attention& s, std::int64_t rows, std::int64_t begin, std::int64_t first,
                  float* scores) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* const line = scores + i * s.length;
    float* const from = line + s.first_seen(begin + i) - first;
    float* const end = line + begin + i + 1 - first;
    const std::int64_t seen = end - from;
    std::fill(line, from, 0.0F);
    const float sum = exponential_row(seen, max_row(seen, from), from);
    scale_row(seen, 1.0F / sum, from);
    std::fill(end, line + begin + rows - first, 0.0F);
  }
}

void softmax_backward_rows(std::int64_t rows, std::int64_t keys, std::int64_t stride, float factor,
                           const float* p, float* dp) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* const line = p + i * stride;
    float* const dline = dp + i * stride;
    softmax_backward_row(keys, dot_row(keys, line, dline), factor, line, dline);
  }
}

}  // namespace

void norm_forward(Size size, const NormForward& norm) {
  const std::int64_t columns = size.columns;
  const auto inverse = 1.0F / static_cast<float>(columns);
  for_rows(size, [&](std::int64_t row) {
    const float* x = norm.x + row * columns;
    if (norm.added != nullptr) {
      float* const sum = norm.sum + row * columns;
      add_into_row(columns, x, norm.added + row * columns, sum);
      x = sum;
    }
    const float mean = norm.mean != nullptr ? sum_row(columns, x) * inverse : 0.0F;
    const float scale = 1.0F / std::sqrt(squares_row(columns, x, mean) * inverse + norm.epsilon);
    normalize_row(columns, x, mean, scale, norm.weight, norm.bias, norm.out + row * columns);
    if (norm.mean != nullptr) norm.mean[row] = mean;
    norm.scale[row] = scale;
  });
}

void norm_backward(Size size, const NormBackward& norm) {
  const std::int64_t columns = size.columns;
  const auto inverse = 1.0F / static_cast<float>(columns);
  const bool has_bias = norm.bias_gradient != nullptr;
  const std::int64_t width = has_bias ? 2 * columns : columns;
  std::vector<float> partial(static_cast<std::size_t>(std::min(size.rows, pieces_max) * width));
  const std::int64_t pieces =
      for_pieces(size.rows, [&](std::int64_t piece, std::int64_t begin, std::int64_t end) {
        float* const sums = partial.data() + piece * width;
        for (std::int64_t row = begin; row < end; ++row) {
          const float mean = norm.mean != nullptr ? norm.mean[row] : 0.0F;
          const float scale = norm.scale[row];
          const std::int64_t at = row * columns;
          const RowSums both =
              norm_backward_sums(columns, norm.dy + at, norm.x + at, norm.weight, mean, scale);
          const NormRow one{.dy = norm.dy + at,
                            .x = norm.x + at,
                            .weight = norm.weight,
                            .added = norm.added == nullptr ? nullptr : norm.added + at,
                            .dx = norm.dx + at,
                            .weight_gradient = sums,
                            .bias_gradient = has_bias ? sums + columns : nullptr,
                            .mean = mean,
                            .scale = scale};
          norm_backward_row(columns, one, norm.mean != nullptr ? both.gradients * inverse : 0.0F,
                            both.projection * inverse);
        }
      });
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const float* const sums = partial.data() + piece * width;
    add_loop(columns, sums, norm.weight_gradient);
    if (has_bias) add_loop(columns, sums + columns, norm.bias_gradient);
  }
}

void gelu_forward(std::int64_t count, const float* x, float* y) {
  for_elements(count,
               [&](std::int64_t begin, std::int64_t end) { gelu_loop(end - begin, x + begin, y + begin); });
}

void gelu_backward(std::int64_t count, const float* x, const float* dy, float* dx) {
  for_elements(count, [&](std::int64_t begin, std::int64_t end) {
    gelu_backward_loop(end - begin, x + begin, dy + begin, dx + begin);
  });
}

void swiglu_forward(Size size, const float* x, float* y) {
  for_rows(size, [&](std::int64_t row) {
    swiglu_row(size.columns, x + row * 2 * size.columns, y + row * size.columns);
  });
}

void swiglu_backward(Size size, const float* x, const float* dy, float* dx) {
  for_rows(size, [&](std::int64_t row) {
    const std::int64_t at = row * 2 * size.columns;
    swiglu_backward_row(size.columns, x + at, dy + row * size.columns, dx + at);
  });
}

void rotate(const Rotation& r, float* x) {
  const std::int64_t half = r.head_size / 2;
  for_rows({r.rows, r.heads * r.head_size}, [&](std::int64_t row) {
    const float* const cosine = r.angles + row % r.length * r.head_size;
    for (std::int64_t head = 0; head < r.heads; ++head) {
      rotate_head(half, cosine, cosine + half, r.inverse ? -1.0F : 1.0F,
                  x + row * r.stride + head * r.head_size);
    }
  });
}

void embed(Size size, const std::int64_t* tokens, std::int64_t first, std::int64_t entries,
           const float* table, float* out) {
  for_rows(size, [&](std::int64_t row) {
    const std::int64_t entry = tokens[row] - first;
    float* const to = out + row * size.columns;
    if (entry >= 0 && entry < entries) {
      std::copy_n(table + entry * size.columns, size.columns, to);
    } else {
      std::fill_n(to, size.columns, 0.0F);
    }
  });
}

void embed_backward(Size size, const std::int64_t* tokens, std::int64_t first, std::int64_t entries,
                    const float* dout, float* table_gradient) {
  // Each thread has some of the columns, and goes through the rows in their order.
  at::parallel_for(0, size.columns,
                   std::max<std::int64_t>(16, elements_per_task / std::max<std::int64_t>(size.rows, 1)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = 0; row < size.rows; ++row) {
                       const std::int64_t entry = tokens[row] - first;
                       if (entry < 0 || entry >= entries) continue;
                       add_loop(end - begin, dout + row * size.columns + begin,
                                table_gradient + entry * size.columns + begin);
                     }
                   });
}

void add_positions(Size size, std::int64_t begin, std::int64_t length, const float* table, float* x) {
  for_rows(size, [&](std::int64_t row) {
    add_loop(size.columns, table + (begin + row) % length * size.columns, x + row * size.columns);
  });
}

void add_positions_backward(Size size, std::int64_t begin, std::int64_t length, const float* dx,
                            float* table_gradient) {
  at::parallel_for(0, std::min(length, size.rows), grain(size.columns),
                   [&](std::int64_t from, std::int64_t to) {
                     for (std::int64_t start = from; start < to; ++start) {
                       for (std::int64_t row = start; row < size.rows; row += length) {
                         add_loop(size.columns, dx + row * size.columns,
                                  table_gradient + (begin + row) % length * size.columns);
                       }
                     }
                   });
}

void attention_forward(const Attention& s, const float* qkv, float* out, float* probabilities) {
  const std::int64_t width = s.width();
  const std::int64_t d = s.head_size;
  const float factor = 1.0F / std::sqrt(static_cast<float>(d));
  at::parallel_for(0, s.batch * s.heads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first; at < last; ++at) {
      const std::int64_t head = at % s.heads;
      const std::int64_t row = at / s.heads * s.length;
      const std::int64_t shared = head / (s.heads / s.kv_heads);
      const float* const q = qkv + row * width + head * d;
      const float* const k = qkv + row * width + (s.heads + shared) * d;
      const float* const v = k + s.kv_heads * d;
      float* const p = probabilities + at * s.length * s.length;
      for (std::int64_t begin = 0; begin < s.length; begin += tile) {
        const std::int64_t rows = std::min(tile, s.length - begin);
        const std::int64_t seen = s.first_seen(begin);
        const std::int64_t keys = begin + rows - seen;
        float* const scores = p + begin * s.length + seen;
        const at::Tensor tile_p = piece(scores, rows, keys, s.length);
        multiply(piece(q + begin * width, rows, d, width), piece(k + seen * width, keys, d, width).t(),
                 factor, 0, tile_p);
        softmax_rows(s, rows, begin, seen, scores);
        multiply(tile_p, piece(v + seen * width, keys, d, width), 1, 0,
                 piece(out + (row + begin) * s.heads * d + head * d, rows, d, s.heads * d));
      }
    }
  });
}

void attention_backward(const Attention& s, const float* qkv, const float* probabilities, const float* dout,
                        float* dqkv) {
  const std::int64_t width = s.width();
  const std::int64_t d = s.head_size;
  const std::int64_t out_width = s.heads * d;
  const std::int64_t sharing = s.heads / s.kv_heads;
  const float factor = 1.0F / std::sqrt(static_cast<float>(d));
  // The heads that share keys and values add to the same gradients: one thread does them, in their order.
  at::parallel_for(0, s.batch * s.kv_heads, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> scratch(static_cast<std::size_t>(tile * s.length));
    for (std::int64_t at = first; at < last; ++at) {
      const std::int64_t shared = at % s.kv_heads;
      const std::int64_t row = at / s.kv_heads * s.length;
      const std::int64_t k_at = row * width + (s.heads + shared) * d;
      const std::int64_t v_at = k_at + s.kv_heads * d;
      piece(dqkv + k_at, s.length, d, width).zero_();
      piece(dqkv + v_at, s.length, d, width).zero_();
      for (std::int64_t head = shared * sharing; head < (shared + 1) * sharing; ++head) {
        const std::int64_t q_at = row * width + head * d;
        const float* const p = probabilities + (row * s.heads + head * s.length) * s.length;
        for (std::int64_t begin = 0; begin < s.length; begin += tile) {
          const std::int64_t rows = std::min(tile, s.length - begin);
          const std::int64_t seen = s.first_seen(begin);
          const std::int64_t keys = begin + rows - seen;
          const std::int64_t k_seen = k_at + seen * width;
          const std::int64_t v_seen = v_at + seen * width;
          const float* const scores = p + begin * s.length + seen;
          const at::Tensor tile_p = piece(scores, rows, keys, s.length);
          const at::Tensor tile_dout = piece(dout + (row + begin) * out_width + head * d, rows, d, out_width);
          const at::Tensor ds = piece(scratch.data(), rows, keys, s.length);
          multiply(tile_p.t(), tile_dout, 1, 1, piece(dqkv + v_seen, keys, d, width));
          multiply(tile_dout, piece(qkv + v_seen, keys, d, width).t(), 1, 0, ds);
          softmax_backward_rows(rows, keys, s.length, factor, scores, scratch.data());
          multiply(ds, piece(qkv + k_seen, keys, d, width), 1, 0,
                   piece(dqkv + q_at + begin * width, rows, d, width));
          multiply(ds.t(), piece(qkv + q_at + begin * width, rows, d, width), 1, 1,
                   piece(dqkv + k_seen, keys, d, width));
        }
      }
    }
  });
}

void row_maxima(Size size, std::int64_t valid, const float* logits, float* maxima) {
  for_rows(size, [&](std::int64_t row) { maxima[row] = max_row(valid, logits + row * size.columns); });
}

void exponentials(Size size, std::int64_t valid, const std::int64_t* targets, std::int64_t first,
                  const float* maxima, float* logits, float* sums, float* target_logits) {
  for_rows(size, [&](std::int64_t row) {
    float* const line = logits + row * size.columns;
    const std::int64_t target = targets[row] - first;
    target_logits[row] = target >= 0 && target < valid ? line[target] - maxima[row] : 0.0F;
    sums[row] = exponential_row(valid, maxima[row], line);
    std::fill(line + valid, line + size.columns, 0.0F);
  });
}

void cross_entropy_gradient(Size size, std::int64_t valid, const std::int64_t* targets, std::int64_t first,
                            const float* sums, float factor, float* logits) {
  for_rows(size, [&](std::int64_t row) {
    float* const line = logits + row * size.columns;
    const std::int64_t target = targets[row] - first;
    scale_row(valid, factor / sums[row], line);
    if (target >= 0 && target < valid) line[target] -= factor;
  });
}

void column_sums(Size size, const float* x, float* sums) {
  std::vector<float> partial(static_cast<std::size_t>(std::min(size.rows, pieces_max) * size.columns));
  const std::int64_t pieces =
      for_pieces(size.rows, [&](std::int64_t piece, std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          add_loop(size.columns, x + row * size.columns, partial.data() + piece * size.columns);
        }
      });
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    add_loop(size.columns, partial.data() + piece * size.columns, sums);
  }
}

double sum_of_squares(std::int64_t count, const float* x) {
  std::vector<double> partial(static_cast<std::size_t>(std::min(count, pieces_max)));
  for_pieces(count, [&](std::int64_t piece, std::int64_t begin, std::int64_t end) {
    partial[static_cast<std::size_t>(piece)] = squares_loop(end - begin, x + begin);
  });
  double sum = 0;
  for (const double part : partial) sum += part;
  return sum;
}

void add(std::int64_t count, const float* x, float* y) {
  for_elements(count,
               [&](std::int64_t begin, std::int64_t end) { add_loop(end - begin, x + begin, y + begin); });
}

void adamw(std::int64_t count, const AdamW& options, const float* gradient, float* weight,
           float* first_moment, float* second_moment) {
  for_elements(count, [&](std::int64_t begin, std::int64_t end) {
    adamw_loop(end - begin, options, gradient + begin, weight + begin, first_moment + begin,
               second_moment + begin);
  });
}

}  // namespace tutti::train::kernels
