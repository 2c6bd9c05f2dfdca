// A file's content is cut into chunks of one size, each a blob of its own: no program holds more than a chunk
// of a file, and of a large file that changed in one place one chunk travels. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.hpp"
#include "base/units.hpp"

namespace tutti::sync {

constexpr Bytes chunk_bytes = mib(8);  // half of what one request of the API may carry

// An empty file has one chunk, an empty one.
std::size_t chunk_count(Bytes file);

// All are full but the last one.
Bytes chunk_size(Bytes file, std::size_t index);

// Chunk `index` of the file, which had `bytes` when the chunk had this hash. A file that changed since is an
// error.
struct ChunkPlace {
  Bytes bytes;
  std::size_t index = 0;
  std::string hash;
};
Result<std::string> read_chunk(const std::string& path, const ChunkPlace& place);

}  // namespace tutti::sync
