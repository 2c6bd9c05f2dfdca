// A shard of a dataset as memory. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.hpp"

namespace tutti::dataset {

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
