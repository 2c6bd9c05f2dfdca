#include "serve/cpu/team.hpp"

#include <sched.h>

#include <algorithm>

namespace tutti::serve::cpu {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void Member::meet() { team_.meet(); }

Team::Team(int threads) : size_(threads > 0 ? threads : usable_cores()) {
  try {
    for (int index = 1; index < size_; ++index) threads_.emplace_back([this, index] { loop(index); });
  } catch (...) {
    end_all();  // those that there are: there is no memory for more of them, or no more may be made
    throw;
  }
}

Team::~Team() { end_all(); }

void Team::end_all() {
  ends_ = true;
  run_.fetch_add(1);
  run_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::wait_while(const std::atomic<std::uint32_t>& number, std::uint32_t is) {
  for (int turn = 0; turn < turns_max; ++turn) {
    if (number.load(std::memory_order_acquire) != is) return;
    pause_briefly();
  }
  number.wait(is, std::memory_order_acquire);
}

void Team::meet() {
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size_) {
    wait_while(generation_, generation);
    return;
  }
  // The last one: all others are waiting, so that nobody reads what the next phase begins with.
  arrived_.store(0, std::memory_order_relaxed);
  next_.store(0, std::memory_order_relaxed);
  generation_.store(generation + 1, std::memory_order_seq_cst);
  generation_.notify_all();
}

void Team::loop(int index) {
  Member member(*this, index);
  for (std::uint32_t seen = 0;; ++seen) {
    wait_while(run_, seen);
    if (ends_) return;
    (*work_)(member);
    meet();
  }
}

void Team::run(const std::function<void(Member&)>& work) {
  work_ = &work;
  run_.fetch_add(1);
  run_.notify_all();
  Member member(*this, 0);
  work(member);
  meet();
  if (wants_memory_.exchange(false)) throw std::bad_alloc();
}

}  // namespace tutti::serve::cpu
