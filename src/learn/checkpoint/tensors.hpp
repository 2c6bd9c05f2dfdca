// The tensors of a checkpoint, put together from what its files hold. Pure, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/checkpoint/manifest.hpp"

namespace tutti::checkpoint {

// A box of a tensor, and where its bytes begin.
struct Place {
  Box box;
  std::size_t file = 0;  // its index
  std::uint64_t begin = 0;
};

struct StoredTensor {
  safetensors::Type type = safetensors::Type::f32;
  std::vector<std::int64_t> shape;
  std::vector<Place> places;
};

using Tensors = std::map<std::string, StoredTensor>;

// Refuses files whose pieces disagree about a tensor, leave some of it out, or hold some of it twice.
Result<Tensors> index_tensors(std::span<const FileRecord> files);

}  // namespace tutti::checkpoint
