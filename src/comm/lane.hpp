// A line of operations that run one after the other: those of a group, or the messages from one rank to
// another. Whoever waits for an operation runs it on its own thread, which costs no switch; what nobody waits
// for is run by the lane's own thread, so that work goes on while the caller computes. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/result.hpp"
#include "comm/call.hpp"
#include "comm/communicator.hpp"
#include "comm/device_line.hpp"
#include "comm/signal.hpp"

namespace tutti::comm {

class DeviceCollectives;

struct Work::State {
  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Call call;
  Duration deadline{};
  std::uint64_t sequence = 0;
  std::uint64_t record = 0;  // in the flight recorder
  Clock::time_point enqueued;
  bool on_device = false;
  // Begun by its waiter alone: on a device, what waits for others too early would hold up what they wait for.
  bool deferred = false;
  void* context = nullptr;  // of an operation on device memory
  void* stream = nullptr;   // the caller's, for such an operation
  void* ready = nullptr;    // a CUDA event: the input is complete
  // Where the operation runs, if it is on a device's stream; what comes after it is told so by wait().
  std::shared_ptr<DeviceCollectives> launched_on;
  Ticket ticket;
  std::atomic<bool> done{false};
  Result<> result;
};

class Lane {
 public:
  // Runs one operation; called by one thread at a time, in order.
  using Runner = std::function<Result<>(Work::State&)>;

  explicit Lane(Runner runner) : runner_(std::move(runner)) {}
  // Runs what is left: a message that nobody waits for is sent all the same.
  ~Lane();

  // `number` is called with the state before anyone can run it, in the order of the pushes.
  void push(const std::shared_ptr<Work::State>& work, const std::function<void(Work::State&)>& number);
  // Runs it, and what is before it, on the caller's thread.
  void run_now(const std::shared_ptr<Work::State>& work, const std::function<void(Work::State&)>& number);
  // Nothing is in line.
  bool idle();
  Result<> wait(Work::State& work);

 private:
  void run_front(std::unique_lock<std::mutex>& lock);
  void run_until(std::unique_lock<std::mutex>& lock, const Work::State& work);
  void run_thread();

  Runner runner_;
  std::mutex mutex_;
  std::condition_variable changed_;  // an operation has ended
  std::condition_variable thread_wake_;
  std::deque<std::shared_ptr<Work::State>> queue_;
  bool running_ = false;
  bool stopping_ = false;
  bool asleep_ = true;          // the lane's thread sleeps until it is told
  bool waited_inline_ = false;  // the last operation was run by its waiter
  std::uint64_t pushes_ = 0;
  std::thread thread_;
};

}  // namespace tutti::comm
