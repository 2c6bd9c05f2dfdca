// Whether the node can start ranks: its agent's folder has room and can be written. A thread of its own looks
// at the disk, which may stand still; whoever asks is answered at once with what was seen last. One thread
// asks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/time.hpp"
#include "base/units.hpp"

namespace tutti::agent {

// With less room a node takes no work; it takes it again with twice as much, so that it does not waver.
constexpr Bytes free_bytes_min = mib(32);
constexpr std::uint64_t free_files_min = 100;
constexpr Duration health_every = 2s;
constexpr Duration health_time_max = 20s;  // a disk that takes longer does not answer

// What is wrong with the folder, "" if nothing is. The text does not change while the cause is the same.
std::string look_at_folder(const std::string& folder, bool was_ill);

class Health {
 public:
  // Looks once before it returns.
  explicit Health(std::string folder);
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;
  ~Health();

  std::string illness();

 private:
  using Clock = std::chrono::steady_clock;

  void start();
  void run();

  const std::string folder_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::string illness_;
  Clock::time_point seen_at_ = Clock::now();
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::agent
