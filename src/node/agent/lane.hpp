// Work on files that others own: ranks, shared disks. Such a file may keep whoever touches it waiting for
// ever, so the agent's loop, which keeps the node's lease, leaves it to the few threads of a lane. Work that
// is stuck gives its place to a fresh thread, up to a bound, and work of one owner has one place at a time:
// what a rank does to its own files costs only itself. A lane belongs to the loop's thread; the work must not
// refer to anything that could go before it has come back.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "net/http/loop.hpp"

namespace tutti::agent {

struct LaneLimits {
  std::size_t threads_max = 1;
  // Work that takes longer is stuck.
  Duration patience = 2s;
  // Of so much stuck work each has a thread beside the others; what comes after it keeps its place.
  std::size_t stuck_max = 64;
};

class Lane {
 public:
  // Runs on the loop, when the work is done and the lane is still there.
  using Then = std::function<void()>;
  using Work = std::function<Then()>;
  // Runs on the loop in place of the `Then` of work that has thrown: somebody may wait for what it was to
  // tell.
  using Otherwise = std::function<void(const std::string& why)>;

  // Threads are started when there is work for them.
  Lane(net::Loop& loop, LaneLimits limits);
  // Never more threads than that, whatever is stuck: for work that has to be done one by one.
  Lane(net::Loop& loop, std::size_t threads_max) : Lane(loop, LaneLimits{threads_max, {}, 0}) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  // Waits a moment for work under way. What is stuck is left behind, and its `Then` does not run.
  ~Lane();

  void run(Work work, Otherwise otherwise = {}) { run("", std::move(work), std::move(otherwise)); }
  // After all work of the same owner, which is named as a person would know it. "" owns nothing.
  void run(const std::string& owner, Work work, Otherwise otherwise = {});
  // Work that has not come back yet.
  std::size_t under_way() const;
  bool busy(const std::string& owner) const;
  // For how long a thread has been at one work of this owner; zero if none is.
  Duration at_work(const std::string& owner) const;
  // As much is stuck as the lane bears: what is stuck next holds up others.
  bool full() const;

 private:
  struct State;
  static void serve(const std::shared_ptr<State>& state);
  bool add_thread();
  void look();
  std::vector<std::string> replace_stuck();

  std::shared_ptr<State> state_;
  std::shared_ptr<net::Loop::Handle> retry_;
  std::shared_ptr<net::Loop::Handle> timer_;
};

}  // namespace tutti::agent
