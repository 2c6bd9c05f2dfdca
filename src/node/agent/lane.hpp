// Work on files that others own: ranks, shared disks. Such a file may keep whoever touches it waiting for
// ever, so the agent's loop, which keeps the node's lease, leaves it to the few threads of a lane. A lane
// belongs to the loop's thread; the work must not refer to anything that could go before it has come back.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "net/http/loop.hpp"

namespace tutti::agent {

class Lane {
 public:
  // Runs on the loop, when the work is done and the lane is still there.
  using Then = std::function<void()>;
  using Work = std::function<Then()>;

  // Threads are started when there is work for them.
  Lane(net::Loop& loop, std::size_t threads_max);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  // Waits a moment for work under way. What is stuck is left behind, and its `Then` does not run.
  ~Lane();

  void run(Work work);
  // Work that has not come back yet.
  std::size_t under_way() const;

 private:
  struct State;
  static void serve(const std::shared_ptr<State>& state);
  void add_thread();

  std::shared_ptr<State> state_;
  std::shared_ptr<net::Loop::Handle> retry_;
};

}  // namespace tutti::agent
