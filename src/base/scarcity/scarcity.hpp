// Want of memory, for tests: as long as one lives, nobody in this process is given more than so much at a
// time. One at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

class Scarcity {
 public:
  explicit Scarcity(std::size_t allocation_bytes_max);
  Scarcity(const Scarcity&) = delete;
  Scarcity& operator=(const Scarcity&) = delete;
  ~Scarcity();
};

// A moment of want: of what this process asks for from now on, so many are given, the next is not, and all
// behind it are. One at a time.
class ScarceMoment {
 public:
  explicit ScarceMoment(std::uint32_t given_before);
  ScarceMoment(const ScarceMoment&) = delete;
  ScarceMoment& operator=(const ScarceMoment&) = delete;
  ~ScarceMoment();
  bool has_come() const;
};

}  // namespace tutti
