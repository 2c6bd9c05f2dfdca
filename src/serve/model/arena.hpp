// Gives parts of a memory, one behind the other: what a model computes in is planned and reserved by the same
// code. Without a memory it only counts. A value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::serve {

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
    used_ += (bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
    return base_ == nullptr ? nullptr : base_ + at;
  }
  std::size_t used() const { return used_; }

 private:
  // What GPUs read at once, and a whole number of a CPU's lines.
  static constexpr std::size_t alignment_bytes = 256;

  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace tutti::serve
