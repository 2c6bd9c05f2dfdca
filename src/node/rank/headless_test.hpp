// Processes that their first thread has left, and that run on in another.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "node/rank/process.hpp"

namespace tutti::rank {

// In a child of one thread.
[[noreturn]] inline void run_on_in_another_thread() {
  std::thread([] {
    for (;;) pause();
  }).detach();
  syscall(SYS_exit, 0);  // of this thread alone
  _exit(1);
}

inline void wait_until_headless(pid_t pid) {
  for (auto status = read_process(pid); status && status->state != 'Z'; status = read_process(pid))
    std::this_thread::yield();
}

}  // namespace tutti::rank
