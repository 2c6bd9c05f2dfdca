#include "control/controller/blob_desk.hpp"

#include <utility>

namespace tutti::controller {

BlobDesk::BlobDesk() {
  for (std::size_t thread = 0; thread < blob_threads; ++thread) threads_.emplace_back([this] { work(); });
}

void BlobDesk::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool BlobDesk::run(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || waiting_.size() >= waiting_blobs_max) return false;
    waiting_.push_back(std::move(task));
  }
  woken_.notify_one();
  return true;
}

void BlobDesk::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return !waiting_.empty() || stopping_; });
      if (stopping_) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task();
  }
}

}  // namespace tutti::controller
