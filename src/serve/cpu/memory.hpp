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

// Gives parts of a memory, one behind the other. Without a memory it only counts.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::byte* base) : base_(base) {}

  template <class T>
  T* take(std::int64_t count) {
    return reinterpret_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }
  std::byte* take_bytes(std::size_t bytes) {
    const std::size_t at = used_;
    used_ += (bytes + line_bytes - 1) / line_bytes * line_bytes;
    return base_ == nullptr ? nullptr : base_ + at;
  }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t line_bytes = 64;

  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

// What this process could still take: of the machine's memory, and of its control group's.
Result<std::uint64_t> free_memory_bytes();

// "1.1 GB", "240 MB"
std::string shown_bytes(std::uint64_t bytes);

}  // namespace tutti::serve::cpu
