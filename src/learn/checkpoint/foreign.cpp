#include "learn/checkpoint/foreign.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::checkpoint {

std::map<std::string, std::vector<std::int64_t>> shapes_of(const model::Shape& shape) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const model::Unit& unit : model::units(shape)) {
    for (const model::Tensor& tensor : unit.tensors) shapes.emplace(tensor.name, tensor.shape);
  }
  return shapes;
}

void transpose(std::span<const float> from, std::int64_t rows, std::int64_t columns, std::span<float> to) {
  TUTTI_CHECK(from.size() == to.size() && static_cast<std::int64_t>(from.size()) == rows * columns);
  // Square by square: both the lines read and the lines written then stay in the cache.
  constexpr std::int64_t side = 32;
  for (std::int64_t top = 0; top < rows; top += side) {
    for (std::int64_t left = 0; left < columns; left += side) {
      for (std::int64_t row = top; row < std::min(top + side, rows); ++row) {
        for (std::int64_t column = left; column < std::min(left + side, columns); ++column) {
          to[static_cast<std::size_t>(column * rows + row)] =
              from[static_cast<std::size_t>(row * columns + column)];
        }
      }
    }
  }
}

}  // namespace tutti::checkpoint
