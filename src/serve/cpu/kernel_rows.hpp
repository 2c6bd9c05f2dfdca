// What lies between the products, as templates: see kernel_vector.hpp.
#pragma once

#include "serve/cpu/kernel_vector.hpp"

namespace {

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

void quantize(const Quantize& job) {
  constexpr float largest = 127;
  constexpr float rounder = 12582912.0F;  // see exponential()
  for (std::int64_t block = 0; block < job.columns / block_columns; ++block) {
    const float* const values = job.values + block * block_columns;
    std::int8_t* const quants = job.quants + block * block_columns;
    // Floats without a sign are in the order of their bits.
    std::uint32_t most = 0;
    for (std::int64_t at = 0; at < block_columns; ++at) {
      const std::uint32_t bits = bits_of(values[at]) & 0x7fffffffU;
      most = most > bits ? most : bits;
    }
    const float scale = float_of(most) / largest;
    const float inverse = most == 0 ? 0.0F : largest / float_of(most);
    std::int32_t sum = 0;
    for (std::int64_t at = 0; at < block_columns; ++at) {
      const auto quant =
          static_cast<std::int32_t>(bits_of(values[at] * inverse + rounder) - bits_of(rounder));
      quants[at] = static_cast<std::int8_t>(quant);
      sum += quant;
    }
    job.scales[block] = scale;
    job.offsets[block] = -job.zero * sum;
  }
}

// The sum of f(value) over a row, sixteen sums side by side.
template <class F>
float sum_over(const float* values, std::int64_t count, F f) {
  Sixteen sums;
  std::int64_t at = 0;
  for (; at + panel_rows <= count; at += panel_rows)
    for (int slice = 0; slice < slices; ++slice)
      sums.part[slice] = sums.part[slice] + f(load(values + at + slice * lanes));
  float sum = sum_of(sums);
  for (; at < count; ++at) {
    float one[lanes] = {values[at]};
    sum += f(load(one))[0];
  }
  return sum;
}

void scale_row(const Normalize& job, float mean, float factor) {
  std::int64_t at = 0;
  for (; at + lanes <= job.count; at += lanes) {
    Vector value = (load(job.values + at) - mean) * factor * load(job.scale + at);
    if (job.bias != nullptr) value = value + load(job.bias + at);
    store(job.out + at, value);
  }
  for (; at < job.count; ++at) {
    float value = (job.values[at] - mean) * factor * job.scale[at];
    if (job.bias != nullptr) value = value + job.bias[at];
    job.out[at] = value;
  }
}

void normalize_rms(const Normalize& job) {
  const float squares = sum_over(job.values, job.count, [](Vector value) { return value * value; });
  scale_row(job, 0, 1 / __builtin_sqrtf(squares / static_cast<float>(job.count) + job.epsilon));
}

void normalize_layer(const Normalize& job) {
  const auto count = static_cast<float>(job.count);
  const float mean = sum_over(job.values, job.count, [](Vector value) { return value; }) / count;
  const float squares = sum_over(job.values, job.count, [mean](Vector value) {
    const Vector from_mean = value - mean;
    return from_mean * from_mean;
  });
  scale_row(job, mean, 1 / __builtin_sqrtf(squares / count + job.epsilon));
}

// x / (1 + e^-x)
inline Vector silu(Vector x) { return x / (1.0F + exponential(-x)); }
// x / 2 · (1 + tanh(u)) is x / (1 + e^-2u).
inline Vector gelu_tanh(Vector x) {
  const Vector u = 0.7978845608F * (x + 0.044715F * x * x * x);
  return x / (1.0F + exponential(-2.0F * u));
}
inline Vector gelu(Vector x) {
  Vector result = x;
  for (int lane = 0; lane < lanes; ++lane)
    result[lane] = 0.5F * x[lane] * (1.0F + __builtin_erff(x[lane] * 0.7071067812F));
  return result;
}

template <class F>
void bend_all(F f, const float* values, const float* others, float* out, std::int64_t count) {
  for (std::int64_t at = 0; at < count; at += lanes) {
    float value[lanes] = {};
    float other[lanes] = {};
    const bool is_whole = at + lanes <= count;
    const auto bytes = static_cast<std::size_t>(is_whole ? lanes : count - at) * sizeof(float);
    if (!is_whole) {
      __builtin_memcpy(value, values + at, bytes);
      if (others != nullptr) __builtin_memcpy(other, others + at, bytes);
    }
    Vector result = f(load(is_whole ? values + at : value));
    if (others != nullptr) result = result * load(is_whole ? others + at : other);
    if (is_whole) {
      store(out + at, result);
    } else {
      store(value, result);
      __builtin_memcpy(out + at, value, bytes);
    }
  }
}

void bend(Bend how, const float* values, const float* others, float* out, std::int64_t count) {
  switch (how) {
    case Bend::gelu:
      return bend_all(gelu, values, others, out, count);
    case Bend::gelu_tanh:
      return bend_all(gelu_tanh, values, others, out, count);
    case Bend::silu:
      return bend_all(silu, values, others, out, count);
  }
}

void rotate(float* head, const float* cosines, const float* sines, std::int64_t half) {
  std::int64_t at = 0;
  for (; at + lanes <= half; at += lanes) {
    const Vector first = load(head + at);
    const Vector second = load(head + half + at);
    store(head + at, first * load(cosines + at) - second * load(sines + at));
    store(head + half + at, second * load(cosines + at) + first * load(sines + at));
  }
  for (; at < half; ++at) {
    const float first = head[at];
    const float second = head[half + at];
    head[at] = first * cosines[at] - second * sines[at];
    head[half + at] = second * cosines[at] + first * sines[at];
  }
}

void add_scaled(const float* values, float factor, float* out, std::int64_t count) {
  std::int64_t at = 0;
  for (; at + lanes <= count; at += lanes) store(out + at, load(out + at) + factor * load(values + at));
  for (; at < count; ++at) out[at] = out[at] + factor * values[at];
}

}  // namespace
