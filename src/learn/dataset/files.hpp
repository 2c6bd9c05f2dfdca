// Files as a dataset needs them: whole and small, written to the disk, or mapped into memory. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace tutti::dataset {

// The whole file; one above `bytes_max` is refused.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max);

// At this place of an open file. A full disk is an error; `path` is for the message.
Result<> write_at(int file, std::uint64_t begin, std::span<const std::byte> bytes, const std::string& path);

// A new file, on the disk when this returns.
Result<> write_file(const std::string& path, std::string_view content);
Result<> flush_to_disk(int file, const std::string& path);

// A file in memory, read only. Whoever makes the file shorter meanwhile ends the program.
class Mapping {
 public:
  // A file of another size is refused.
  static Result<Mapping> open(const std::string& path, std::uint64_t bytes);

  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit Mapping(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace tutti::dataset
