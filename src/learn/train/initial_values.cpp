#include "learn/train/initial_values.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/hash/hash.hpp"
#include "base/prng.hpp"

namespace tutti::train {
namespace {

// A number in (0, 1] from 53 bits.
double unit(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 1.0) * 0x1.0p-53; }

double normal(std::uint64_t key, std::uint64_t element) {
  const double radius = std::sqrt(-2.0 * std::log(unit(mixed(key ^ (2 * element)))));
  return radius * std::cos(2.0 * std::numbers::pi * unit(mixed(key ^ (2 * element + 1))));
}

// The elements of a box in the order of its rows, each with its place in the whole tensor.
template <class F>
void for_elements(const std::vector<std::int64_t>& shape, const checkpoint::Box& box, const F& each) {
  const std::int64_t columns = box.extent.back();
  const std::int64_t rows = box.elements() / columns;
  const std::int64_t row_length = shape.back();
  const std::int64_t first_row = shape.size() == 2 ? box.offset.front() : 0;
  at::parallel_for(0, rows, std::max<std::int64_t>(1, 4096 / columns),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const std::int64_t place = (first_row + row) * row_length + box.offset.back();
                       for (std::int64_t column = 0; column < columns; ++column)
                         each(row * columns + column, place + column);
                     }
                   });
}

}  // namespace

Parameters::Source initial_values(std::uint64_t seed) {
  return [seed](Kind kind, const model::Tensor& tensor, const checkpoint::Box& box, std::span<float> out) {
    TUTTI_CHECK(tensor.shape.size() <= 2);
    if (kind != Kind::weight || tensor.deviation == 0) {
      std::fill(out.begin(), out.end(), kind == Kind::weight && tensor.starts_at_one ? 1.0F : 0.0F);
      return;
    }
    const std::uint64_t key = mixed(hash64(as_bytes(tensor.name), seed));
    for_elements(tensor.shape, box, [&](std::int64_t at, std::int64_t place) {
      out[static_cast<std::size_t>(at)] =
          static_cast<float>(tensor.deviation * normal(key, static_cast<std::uint64_t>(place)));
    });
  };
}

}  // namespace tutti::train
