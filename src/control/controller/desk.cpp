#include "control/controller/desk.hpp"

#include <utility>

namespace tutti::controller {

Desk::Desk(const DeskOptions& options) : crowded_(options.crowded), waiting_(options.waiting_max) {
  for (std::size_t thread = 0; thread < options.threads; ++thread) threads_.emplace_back([this] { work(); });
}

void Desk::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool Desk::run(const std::string& address, std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || !waiting_.add(address, std::move(task))) return false;
  }
  woken_.notify_one();
  return true;
}

void Desk::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return !waiting_.empty() || stopping_; });
      if (stopping_) return;
      task = waiting_.take();
    }
    task();
  }
}

}  // namespace tutti::controller
