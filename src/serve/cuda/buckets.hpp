// Steps of one token a sequence come in few sizes, so that each can be recorded ahead. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::serve::cuda {

// Rising, the last is rows_max.
std::vector<std::int32_t> bucket_sizes(std::int32_t rows_max);
// The smallest that has room for so many; rows lie between 1 and the last bucket.
std::int32_t bucket_of(std::span<const std::int32_t> buckets, std::int32_t rows);

// Whether so many sequences fill a device with a warp for each and its heads that share keys: it has nothing
// to put together at its end.
bool by_one_warp(std::int32_t rows, std::int64_t head_groups);

// Into how many parts the context of each of `rows` sequences is split at most, so that all multiprocessors
// have something to do.
std::int32_t splits_of(std::int32_t rows, std::int64_t head_groups, int multiprocessors,
                       std::int64_t context);

}  // namespace tutti::serve::cuda
