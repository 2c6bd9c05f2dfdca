// Whether a whole answer is taken fast enough for its reader to be given more time: it has some for each
// small part of it, so that who reads steadily gets all of it, and who takes a byte now and then does not
// keep it for ever. A value.
#pragma once

#include <cstddef>

namespace tutti::net {

constexpr std::size_t answer_parts = 64;

class Progress {
 public:
  explicit Progress(std::size_t bytes) : part_bytes_(bytes / answer_parts + 1) {}

  // True when a part is taken.
  bool took(std::size_t bytes) {
    taken_bytes_ += bytes;
    if (taken_bytes_ < part_bytes_) return false;
    taken_bytes_ = 0;
    return true;
  }

 private:
  const std::size_t part_bytes_;
  std::size_t taken_bytes_ = 0;  // since the last part
};

}  // namespace tutti::net
