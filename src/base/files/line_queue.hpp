// Lines on their way to a file, a pipe or a terminal, written by a thread of their own: whoever adds one
// never waits for a disk that has stalled or for a reader that has stopped. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::files {

class LineQueue {
 public:
  // Whether the line was written; one that was not is missing. It may take for ever, and must not throw.
  using Write = std::function<bool(const std::string& line)>;
  // So many lines are missing where the next one is written; false if that could not be told.
  using Tell = std::function<bool(std::uint64_t lines)>;

  // What waits is bounded; the newest lines are the ones that have no room.
  static Result<LineQueue> start(std::size_t bytes_max, Write write, Tell tell);
  LineQueue(LineQueue&&) noexcept = default;
  LineQueue& operator=(LineQueue&&) = delete;
  // What waits has a second; a thread that is stuck is left behind.
  ~LineQueue();

  // False if there is no room for it: it is missing.
  bool add(std::string line) const;
  // There is none of it, and so it is missing. Takes no memory.
  void miss() const;
  // Whether all that was added has left within the time, be it that it could not be written.
  bool drain(Duration patience) const;

 private:
  struct State;
  explicit LineQueue(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void serve(State& state);

  std::shared_ptr<State> state_;
};

// To a descriptor that others may have made non-blocking; false if it was not written as a whole.
bool write_line(int file, const std::string& line);

}  // namespace tutti::files
