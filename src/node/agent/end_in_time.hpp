// An agent that was asked to end does end, though one of its threads waits for a disk that does not answer:
// its ranks live on, and what has to outlive it is in their folders. Any thread.
#pragma once

#include <memory>

#include "base/time.hpp"

namespace tutti::agent {

constexpr Duration end_patience = 5s;

class EndInTime {
 public:
  explicit EndInTime(Duration patience = end_patience);
  EndInTime(const EndInTime&) = delete;
  EndInTime& operator=(const EndInTime&) = delete;
  // It has ended by itself.
  ~EndInTime();

  // Unless this object goes before, the process ends when the patience does, with a line in its log.
  void begin() const;

 private:
  struct State;
  static void wait(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace tutti::agent
