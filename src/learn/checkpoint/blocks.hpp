// The files of a checkpoint, block by block: each block is verified when it is read, and the last ones are
// kept, because the next read is often beside them. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "learn/checkpoint/manifest.hpp"

namespace tutti::checkpoint {

class Blocks {
 public:
  Blocks(std::string folder, std::vector<FileRecord> files)
      : folder_(std::move(folder)), files_(std::move(files)) {}

  const std::vector<FileRecord>& files() const { return files_; }
  // Opens the files, as many as it may have open at once; of those the bytes can be read whatever becomes of
  // the folder.
  Result<> hold();
  // The bytes of a block, until the next call.
  Result<std::span<const std::byte>> read(std::size_t file, std::uint64_t block);
  // Of a file, [begin, …), as many as there is room for.
  Result<> copy(std::size_t file, std::uint64_t begin, std::span<std::byte> bytes);
  // Whether the file has as many bytes as were written.
  Result<> check_size(std::size_t file);
  // From the disk, so far.
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct Kept {
    std::size_t file = 0;
    std::uint64_t block = 0;
    std::vector<std::byte> bytes;
  };

  Result<int> descriptor(std::size_t file);
  Result<> fill(Kept& kept);

  std::string folder_;
  std::vector<FileRecord> files_;
  std::map<std::size_t, files::FileDescriptor> open_;
  std::list<Kept> kept_;  // the last used first
  std::uint64_t bytes_read_ = 0;
};

}  // namespace tutti::checkpoint
