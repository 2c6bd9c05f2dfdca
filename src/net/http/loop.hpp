// One thread's event loop: tasks, timers and readable descriptors. The shells are written against this and
// against server.hpp, client.hpp and socket.hpp, so that none of them sees Boost.
#pragma once

#include <functional>
#include <memory>

#include "base/time.hpp"

namespace tutti::net {

class Loop {
 public:
  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  // Runs until stop(). The callbacks below all run in here. What one of them throws ends it, because nobody
  // knows what that has left half done; what fails on a connection ends that connection alone.
  void run();
  // From any thread.
  void stop();
  void post(std::function<void()> task);

  // From the loop's thread. A timer or watch ends with its handle.
  class Handle;
  std::shared_ptr<Handle> after(Duration delay, std::function<void()> task);
  std::shared_ptr<Handle> every(Duration period, std::function<void()> task);
  // Calls `ready` each time the descriptor is readable, which stays the caller's.
  std::shared_ptr<Handle> when_readable(int descriptor, std::function<void()> ready);
  // Calls `caught` with each of these signals of the process.
  std::shared_ptr<Handle> on_signals(std::initializer_list<int> signals, std::function<void(int)> caught);
  // The same with all that ask a process to end: SIGTERM, SIGINT, and SIGHUP, which a terminal sends that is
  // closed. Who was started to outlive that (nohup) does.
  std::shared_ptr<Handle> when_asked_to_end(std::function<void(int)> caught);

  struct Core;  // the boost::asio::io_context, for this module's own files
  Core& core() { return *core_; }

 private:
  std::unique_ptr<Core> core_;
};

}  // namespace tutti::net
