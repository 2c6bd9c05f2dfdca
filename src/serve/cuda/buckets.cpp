#include "serve/cuda/buckets.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr std::int32_t splits_max = 64;
// Blocks of threads that a multiprocessor has at a time.
constexpr std::int64_t shares_of_multiprocessor = 2;
// Below so many positions a split is not worth its launch.
constexpr std::int64_t split_positions_min = 64;

}  // namespace

std::vector<std::int32_t> bucket_sizes(std::int32_t rows_max) {
  TUTTI_CHECK(rows_max >= 1);
  std::vector<std::int32_t> sizes;
  for (std::int32_t size = 1; size < rows_max;) {
    sizes.push_back(size);
    size += size < 8 ? 1 : size < 32 ? 8 : size < 128 ? 16 : size < 512 ? 32 : size / 4;
  }
  sizes.push_back(rows_max);
  return sizes;
}

std::int32_t bucket_of(std::span<const std::int32_t> buckets, std::int32_t rows) {
  const auto found = std::lower_bound(buckets.begin(), buckets.end(), rows);
  TUTTI_CHECK(rows >= 1 && found != buckets.end());
  return *found;
}

std::int32_t splits_of(std::int32_t rows, std::int64_t head_groups, int multiprocessors,
                       std::int64_t context) {
  const std::int64_t parts = rows * head_groups;
  const std::int64_t wanted = (shares_of_multiprocessor * multiprocessors + parts - 1) / parts;
  const std::int64_t of_use = std::max<std::int64_t>(1, context / split_positions_min);
  return static_cast<std::int32_t>(std::min<std::int64_t>({wanted, of_use, splits_max}));
}

}  // namespace tutti::serve::cuda
