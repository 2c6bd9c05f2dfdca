// What went wrong in a world, once and for all: the first fault stays, and every wait ends with it.
// Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "base/result.hpp"

namespace tutti::comm {

class Fault {
 public:
  Fault();
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  bool raised() const { return raised_.load(std::memory_order_acquire); }

  // Keeps the first text and wakes every sleeper. Says whether this one was the first.
  bool raise(std::string text);

  // Only after raised().
  Error error() const;

  // Readable for ever once a fault was raised: for waits in poll(2).
  int event() const { return event_; }

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  std::string text_;
  int event_ = -1;
};

}  // namespace tutti::comm
