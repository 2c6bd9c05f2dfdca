// Want of memory, for tests: as long as one lives, nobody in this process is given more than so much at a
// time. One at a time.
#pragma once

#include <cstddef>

namespace tutti {

class Scarcity {
 public:
  explicit Scarcity(std::size_t allocation_bytes_max);
  Scarcity(const Scarcity&) = delete;
  Scarcity& operator=(const Scarcity&) = delete;
  ~Scarcity();
};

}  // namespace tutti
