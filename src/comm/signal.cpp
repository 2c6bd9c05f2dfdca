#include "comm/signal.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti::comm {
namespace {

// A sleeper looks for faults this often: a death is noticed by another thread, which cannot know who sleeps
// where.
constexpr auto sleep_max = std::chrono::milliseconds(20);

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds longest) {
  timespec limit{};
  limit.tv_sec = longest.count() / 1'000'000'000;
  limit.tv_nsec = longest.count() % 1'000'000'000;
  // Not the private kind: the word is shared between processes.
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace

void Signal::advance(std::uint32_t to) {
  // Ordered with the look at `sleepers`: either this sees the sleeper, or the sleeper sees the new value.
  value.exchange(to, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

Patience Patience::for_ranks(int ranks_of_host) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cpus = sched_getaffinity(0, sizeof allowed, &allowed) == 0
                       ? CPU_COUNT(&allowed)
                       : static_cast<int>(std::thread::hardware_concurrency());
  if (ranks_of_host <= cpus) return {.spins = 2000, .yields = 50};
  return {.spins = 20, .yields = 200};
}

Wait wait_for(Signal& signal, std::uint32_t target, const Patience& patience, Clock::time_point deadline,
              const Fault& fault) {
  for (int i = 0; i < patience.spins; ++i) {
    if (signal.reached(target)) return Wait::reached;
    pause_cpu();
  }
  for (int i = 0; i < patience.yields; ++i) {
    if (signal.reached(target)) return Wait::reached;
    if (fault.raised()) return Wait::fault;
    sched_yield();
  }
  while (!signal.reached(target)) {
    if (fault.raised()) return Wait::fault;
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) return Wait::late;
    signal.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = signal.value.load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(seen - target) < 0) {
      futex_wait(signal.value, seen, std::min<Clock::duration>(left, sleep_max));
    }
    signal.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  return Wait::reached;
}

}  // namespace tutti::comm
