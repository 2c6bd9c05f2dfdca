#include "serve/batch/kernels.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace tutti::serve::kernels {
namespace {

constexpr std::size_t lanes = 16;
constexpr float lowest = std::numeric_limits<float>::lowest();

}  // namespace

void copy_finite(std::span<const float> from, std::span<float> to) {
  const float* in = from.data();
  float* out = to.data();
  for (std::size_t at = 0; at < from.size(); ++at) {
    const float above = in[at] > -logit_max ? in[at] : -logit_max;  // NaN is not larger
    out[at] = above < logit_max ? above : logit_max;
  }
}

float largest_of(std::span<const float> row) {
  std::array<float, lanes> largest;
  largest.fill(lowest);
  const float* in = row.data();
  const std::size_t whole = row.size() / lanes * lanes;
  for (std::size_t at = 0; at < whole; at += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane)
      largest[lane] = in[at + lane] > largest[lane] ? in[at + lane] : largest[lane];
  }
  float result = lowest;
  for (const float value : largest) result = std::max(result, value);
  for (std::size_t at = whole; at < row.size(); ++at) result = std::max(result, in[at]);
  return result;
}

void divide(std::span<float> row, float by) {
  float* values = row.data();
  for (std::size_t at = 0; at < row.size(); ++at) values[at] /= by;
}

void weigh(std::span<const float> row, float largest, std::span<float> weights) {
  const float* in = row.data();
  float* out = weights.data();
  for (std::size_t at = 0; at < row.size(); ++at) out[at] = exponential(in[at] - largest);
}

double sum_of_weights(std::span<const float> row, float largest) {
  std::array<double, lanes> sums{};
  const float* in = row.data();
  const std::size_t whole = row.size() / lanes * lanes;
  for (std::size_t at = 0; at < whole; at += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane)
      sums[lane] += static_cast<double>(exponential(in[at + lane] - largest));
  }
  double sum = 0;
  for (const double value : sums) sum += value;
  for (std::size_t at = whole; at < row.size(); ++at)
    sum += static_cast<double>(exponential(in[at] - largest));
  return sum;
}

}  // namespace tutti::serve::kernels
