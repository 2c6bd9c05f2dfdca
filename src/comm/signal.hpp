// A number in shared memory that only grows, which one process advances and others wait for: they spin for a
// short while, because peers are usually close behind, then let others run, then sleep in the kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "comm/fault.hpp"

namespace tutti::comm {

using Clock = std::chrono::steady_clock;

// Lies in shared memory, zeroed at first.
struct Signal {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> sleepers;

  // By the owner only: makes all it wrote before visible to whoever sees the value.
  void advance(std::uint32_t to);

  // Whether the value has reached `target`; numbers wrap around.
  bool reached(std::uint32_t target) const {
    return static_cast<std::int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

enum class Wait { reached, late, fault };

// How the ranks of one host wait for one another.
struct Patience {
  // Turns of the loop before the CPU is given up, and how often it is given up before the thread sleeps.
  int spins = 0;
  int yields = 0;

  // With a CPU for each of the host's ranks there is nobody to make room for; with fewer, spinning keeps the
  // peer from running that one waits for.
  static Patience for_ranks(int ranks_of_host);
};

Wait wait_for(Signal& signal, std::uint32_t target, const Patience& patience, Clock::time_point deadline,
              const Fault& fault);

}  // namespace tutti::comm
