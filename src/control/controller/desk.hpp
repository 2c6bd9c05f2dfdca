// Does what takes long beside the network loop, which hears the agents and must not wait: the disks and
// hashes of shipped folders, the reading of large bodies. A few threads of its own; tasks come from any.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::controller {

struct DeskOptions {
  std::size_t threads = 1;
  std::size_t waiting_max = 1;
};

// Each that waits may hold 16 MiB: a gigabyte in all.
constexpr DeskOptions blob_desk{.threads = 2, .waiting_max = 64};
// One at a time: read, a body takes several times its bytes.
constexpr DeskOptions body_desk{.threads = 1, .waiting_max = 16};

class Desk {
 public:
  explicit Desk(const DeskOptions& options);
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;
  ~Desk() { stop(); }

  // What still waits is not done.
  void stop();

  // Runs it soon on a thread of the desk; false if too many wait.
  [[nodiscard]] bool run(std::function<void()> task);

 private:
  void work();

  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tutti::controller
