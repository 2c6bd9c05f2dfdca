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
  // The text also goes to this file, if it has a name: whoever started the rank finds it there.
  explicit Fault(std::string file = "");
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  bool raised() const { return raised_.load(std::memory_order_acquire); }

  // Keeps the first text and wakes every sleeper. Says whether this one was the first.
  bool raise(std::string text);

  // Leaves a text in the file that is no fault yet, or takes it back with "".
  void note(const std::string& text);

  // Only after raised().
  Error error() const;

  // Readable for ever once a fault was raised: for waits in poll(2).
  int event() const { return event_; }

 private:
  static constexpr std::size_t file_bytes_max = 2048;

  void write_file(const std::string& text) const;

  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  std::string text_;
  std::string file_;
  int event_ = -1;
};

}  // namespace tutti::comm
