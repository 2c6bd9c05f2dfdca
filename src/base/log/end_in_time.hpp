// A program that was asked to end does end, though one of its threads waits for a disk that does not answer:
// what has to outlive it, it has written before it told of it. Any thread.
#pragma once

#include <memory>
#include <string>

#include "base/time.hpp"

namespace tutti {

constexpr Duration end_patience = 5s;

class EndInTime {
 public:
  // `who` is to end, for its log.
  explicit EndInTime(std::string who, Duration patience = end_patience);
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

}  // namespace tutti
