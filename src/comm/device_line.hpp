// What a rank of a group shows the others about its operations on a device: a page of numbers in host memory
// that devices write and wait for in the order of their streams, and that the host reads and, after a fault,
// writes. Numbers count the chunks of the group's operations and only grow, until they wrap around.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/lines.hpp"

namespace tutti::comm {

struct alignas(line_bytes) DeviceFlag {
  std::atomic<std::uint32_t> value;

  bool reached(std::uint32_t target) const {
    return static_cast<std::int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Lies in shared memory, zeroed at first. Each rank waits at its own page alone, so that it can let itself go
// after a fault without letting go others, who may not know of it yet.
struct DeviceLine {
  static constexpr std::size_t ranks_max = 64;
  static constexpr std::size_t calls_max = 512;

  DeviceFlag input;     // by this rank's caller: how many inputs are complete
  DeviceFlag began;     // the last chunk that this rank's stream has come to
  DeviceFlag finished;  // the last one that it is done with
  DeviceFlag poisoned;  // by others: what comes from them may be garbage, the world has a fault
  // By the other ranks, each in its place: the last chunk that it has data out of, and is done reading of.
  DeviceFlag ready[ranks_max];
  DeviceFlag done[ranks_max];
  // By this rank, when it calls: the operation's first chunk, and what it is, in one word.
  std::atomic<std::uint64_t> calls[calls_max];
};

// The chunks of one operation.
struct Ticket {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

}  // namespace tutti::comm
