// Memory that processes of one host share. It has no name and belongs to no file: the kernel frees it when
// the last process that maps it is gone, however that process ended. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/result.hpp"

namespace tutti::comm {

class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Zeroed, and of a size that nobody can change any more.
  static Result<Segment> create(const std::string& name, std::size_t bytes);

  // Maps what process `pid` holds as `descriptor`. Refuses what is smaller than `bytes` or could shrink.
  static Result<Segment> open(pid_t pid, int descriptor, std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // The creator's; -1 for one that was opened.
  int descriptor() const { return descriptor_; }

 private:
  static Result<Segment> map(int descriptor, std::size_t bytes);

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace tutti::comm
