// How a rank writes its part of a checkpoint: one safetensors file, at the speed of the disk. Called by one
// thread of a rank; a second one hashes meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/checkpoint/box.hpp"
#include "learn/checkpoint/manifest.hpp"
#include "learn/safetensors/types.hpp"

namespace tutti::checkpoint {

// What a rank holds of a tensor: the bytes of a box, row-major.
struct Piece {
  std::string tensor;
  safetensors::Type type = safetensors::Type::f32;
  std::vector<std::int64_t> shape;  // of the whole tensor
  Box box;
  std::span<const std::byte> bytes;
};

// Writes `part_folder`/rank-NNNNN.safetensors and returns when it is on the disk. A file that could not be
// finished is removed.
Result<FileRecord> write_file(const std::string& part_folder, int rank, std::span<const Piece> pieces);

}  // namespace tutti::checkpoint
