// Products with weights that are floats, as templates: see kernel_vector.hpp. A tile of some panels and some
// tokens is summed in registers, column after column.
#pragma once

#include "serve/cpu/kernel_vector.hpp"

namespace {

// What is computed before the next tokens begin: their numbers stay in the second-level cache, while panels
// pass by.
constexpr std::int64_t tokens_of_pass = 128;
// How far ahead of the sums weights are asked for: while some are multiplied, the next ones come.
constexpr std::int64_t columns_ahead = 32;

struct DenseFloats {
  using Element = float;
  static Vector read(const Element* from) { return load(from); }
};
struct DenseBrains {
  using Element = std::uint16_t;
  static Vector read(const Element* from) { return load_brain(from); }
};

inline void put(const Product& job, std::int64_t row, std::int64_t token, Vector sum) {
  float* const out = job.out + token * job.out_stride + row;
  if (job.bias != nullptr) sum = sum + load(job.bias + row);
  if (job.add) sum = load(out) + sum;
  store(out, sum);
}

template <class Weights, int panels, int tokens>
void dense_tile(const Product& job, std::int64_t panel, std::int64_t token) {
  using Element = typename Weights::Element;
  const Element* weights[panels];
  for (int p = 0; p < panels; ++p) {
    weights[p] =
        reinterpret_cast<const Element*>(job.panels + static_cast<std::size_t>(panel + p) * job.panel_bytes);
  }
  const float* const values = job.values + token * job.values_stride;
  const std::int64_t stride = job.values_stride;
  Vector sums[panels][tokens][slices] = {};
  for (std::int64_t column = 0; column < job.columns; ++column) {
#pragma GCC unroll 16
    for (int p = 0; p < panels; ++p) __builtin_prefetch(weights[p] + (column + columns_ahead) * panel_rows);
    Vector weight[panels][slices];
#pragma GCC unroll 16
    for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
      for (int s = 0; s < slices; ++s)
        weight[p][s] = Weights::read(weights[p] + column * panel_rows + s * lanes);
#pragma GCC unroll 16
    for (int t = 0; t < tokens; ++t) {
      const Vector value = all(values[t * stride + column]);
#pragma GCC unroll 16
      for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
        for (int s = 0; s < slices; ++s) sums[p][t][s] = sums[p][t][s] + weight[p][s] * value;
    }
  }
  for (int p = 0; p < panels; ++p)
    for (int t = 0; t < tokens; ++t)
      for (int s = 0; s < slices; ++s)
        put(job, (panel + p) * panel_rows + s * lanes, token + t, sums[p][t][s]);
}

template <class Weights, int panels>
void dense_tokens(const Product& job, std::int64_t panel, std::int64_t begin, std::int64_t end) {
  // As many sums as there are registers for, beside the weights and a value.
  constexpr int tokens = lanes == 16 ? 8 : 4;
  std::int64_t token = begin;
  for (; token + tokens <= end; token += tokens) dense_tile<Weights, panels, tokens>(job, panel, token);
  if (tokens > 4 && token + 4 <= end) {
    dense_tile<Weights, panels, 4>(job, panel, token);
    token += 4;
  }
  for (; token + 2 <= end; token += 2) dense_tile<Weights, panels, 2>(job, panel, token);
  if (token < end) dense_tile<Weights, panels, 1>(job, panel, token);
}

template <class Weights>
void dense_product(const Product& job) {
  for (std::int64_t begin = 0; begin < job.tokens; begin += tokens_of_pass) {
    const std::int64_t end = begin + tokens_of_pass < job.tokens ? begin + tokens_of_pass : job.tokens;
    std::int64_t panel = 0;
    if constexpr (lanes == 16) {
      if (end - begin == 1) {
        // One token alone gives too few independent sums to hide how long an addition takes.
        for (; panel + 4 <= job.panel_count; panel += 4) dense_tile<Weights, 4, 1>(job, panel, begin);
      }
      for (; panel + 2 <= job.panel_count; panel += 2) dense_tokens<Weights, 2>(job, panel, begin, end);
    }
    for (; panel < job.panel_count; ++panel) dense_tokens<Weights, 1>(job, panel, begin, end);
  }
}

}  // namespace
