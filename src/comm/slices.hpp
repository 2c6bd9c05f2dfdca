// A reduction of large buffers inside a host, through slots: each member reduces a slice of each chunk, and
// the others copy its sum. Three chunks are in work at a time, so that waits are for what the others did a
// step ago. Lives for one operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/outcome.hpp"
#include "comm/reduce.hpp"
#include "comm/slots.hpp"

namespace tutti::comm {

// One member's part in it; `root` -1: everyone gets the result.
struct SlicedWork {
  Reduce how{};
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  int root = -1;
  Store staging = Store::cached;
};

class SlicedReduction {
 public:
  SlicedReduction(Slots& slots, const SlicedWork& work);

  Outcome run(const Limits& limits);

 private:
  // Where it begins in a buffer, and how long it is.
  struct Slice {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  Slice slice(std::size_t chunk, std::size_t member) const;

  Outcome copy_in(std::size_t chunk, const Limits& limits);
  Outcome add_up(std::size_t chunk, const Limits& limits);
  Outcome copy_out(std::size_t chunk, const Limits& limits);

  std::uint32_t ticket(std::size_t chunk) const { return first_ticket_ + static_cast<std::uint32_t>(chunk); }
  std::uint32_t sum(std::size_t chunk) const { return first_sum_ + static_cast<std::uint32_t>(chunk); }

  Slots& slots_;
  SlicedWork work_;
  std::size_t members_;
  std::size_t me_;
  std::size_t bytes_;
  std::size_t slice_bytes_max_;
  std::size_t chunk_bytes_;
  std::size_t chunks_;
  bool wants_;   // whether this member gets the result
  Store store_;  // of the result
  std::uint32_t first_ticket_;
  std::uint32_t first_sum_;
  std::vector<const std::byte*> sources_;
};

}  // namespace tutti::comm
