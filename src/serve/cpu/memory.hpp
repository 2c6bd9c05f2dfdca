// Memory that is reserved once and kept, in large pages where the system has them. Any thread, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/result.hpp"

namespace tutti::serve::cpu {

class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  // Zeros. `what` is for the message.
  static Result<Memory> reserve(std::size_t bytes, const char* what);
  // Takes a part of it from the system now, so that it is there when it is needed.
  void touch(std::size_t begin, std::size_t bytes) const;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// What this process could still take: of the machine's memory, and of its control groups'. The files that say
// it are looked for below `root`.
Result<std::uint64_t> free_memory_bytes(const std::string& root = "");

// "1.1 GB", "240 MB"
std::string shown_bytes(std::uint64_t bytes);

}  // namespace tutti::serve::cpu
