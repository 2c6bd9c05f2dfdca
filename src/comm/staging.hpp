// How large chunks are handed over inside a host: through the caches, or through memory. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "comm/reduce.hpp"
#include "comm/signal.hpp"

namespace tutti::comm {

// Data beyond this no longer fits into the caches together with its peers': it is written around them.
constexpr std::size_t stream_bytes_min = std::size_t{8} << 20;

inline Store store_for(std::size_t bytes) {
  return bytes >= stream_bytes_min ? Store::stream : Store::cached;
}

// Which way is faster depends on how near the members' CPUs are, which may change while they run: both are
// tried, and the faster one is used. The first member decides for all.
class StagingSpeeds {
 public:
  Store next();
  void took(Store store, std::size_t bytes, Clock::duration time);

 private:
  static constexpr std::uint64_t try_other_every = 32;
  std::uint64_t operations_ = 0;
  std::array<double, 2> ns_per_mib_{};  // cached, stream; 0: not tried yet
};

}  // namespace tutti::comm
