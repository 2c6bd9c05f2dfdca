// Reads, hashes and writes the contents of shipped folders beside the network loop, which hears the agents
// and must not wait for a disk. A few threads of its own; tasks come from any.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::controller {

constexpr std::size_t waiting_blobs_max = 64;  // each may hold 16 MiB: a gigabyte in all
constexpr std::size_t blob_threads = 2;

class BlobDesk {
 public:
  BlobDesk();
  BlobDesk(const BlobDesk&) = delete;
  BlobDesk& operator=(const BlobDesk&) = delete;
  ~BlobDesk() { stop(); }

  // What still waits is not done.
  void stop();

  // Runs it soon on a thread of the desk; false if too many wait.
  [[nodiscard]] bool run(std::function<void()> task);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tutti::controller
