#include "serve/cuda/buckets.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr std::int32_t splits_max = 64;
// Blocks of threads that a multiprocessor has at a time.
constexpr std::int64_t shares_of_multiprocessor = 2;
// Measured on an H200; beyond so many rows nobody is alone for long.
constexpr std::int64_t one_warp_parts_min = 512;
constexpr std::int32_t one_warp_rows_max = 1024;
// Where a warp has a whole sequence, a long one must not be what all wait for.
constexpr std::int64_t splits_of_one_warp = 4;
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

bool by_one_warp(std::int32_t rows, std::int64_t head_groups) {
  return rows * head_groups >= one_warp_parts_min && rows <= one_warp_rows_max;
}

std::int32_t splits_of(std::int32_t rows, std::int64_t head_groups, int multiprocessors,
                       std::int64_t context) {
  const std::int64_t parts = rows * head_groups;
  const std::int64_t wanted = std::max((shares_of_multiprocessor * multiprocessors + parts - 1) / parts,
                                       by_one_warp(rows, head_groups) ? splits_of_one_warp : 1);
  const std::int64_t of_use = std::max<std::int64_t>(1, context / split_positions_min);
  return static_cast<std::int32_t>(std::min<std::int64_t>({wanted, of_use, splits_max}));
}

}  // namespace tutti::serve::cuda
