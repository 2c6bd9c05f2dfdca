// Threads that do what would keep the network loop waiting, in the order in which it comes, and a bound on
// how much waits. Any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::serve {

class Workshop {
 public:
  Workshop(std::size_t threads, std::size_t tasks_max);
  // What has not begun is forgotten.
  ~Workshop();
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  // False if too many wait already.
  bool give(std::function<void()> task);

 private:
  void work();

  const std::size_t tasks_max_;
  std::mutex mutex_;  // of what follows
  std::condition_variable given_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace tutti::serve
