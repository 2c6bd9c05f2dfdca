#include "serve/server/workshop.hpp"

namespace tutti::serve {

Workshop::Workshop(std::size_t threads, std::size_t tasks_max) : tasks_max_(tasks_max) {
  for (std::size_t nth = 0; nth < threads; ++nth) threads_.emplace_back([this] { work(); });
}

Workshop::~Workshop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  given_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workshop::give(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (tasks_.size() >= tasks_max_) return false;
    tasks_.push_back(std::move(task));
  }
  given_.notify_one();
  return true;
}

void Workshop::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace tutti::serve
