// The controller's heart: the thread that takes queued events from turn to turn (driver/turns.hpp), and sends
// and answers what a turn has brought. Sockets and timers only enqueue.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/driver/turns.hpp"
#include "control/store/store.hpp"

namespace tutti::controller {

constexpr std::size_t waiting_items_max = 200'000;  // beyond it requests are refused

class Core {
 public:
  // Called on the core's thread; must not block.
  using Deliver = std::function<void(driver::Delivery)>;
  using Reply = driver::Reply;
  using Query = driver::Query;

  // Called on the core's thread when a job has ended.
  using Ended = std::function<void(const cluster::Job&)>;

  Core(store::Store& store, Deliver deliver, Ended ended = nullptr, const cluster::Retention& keep = {});
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  // Loads the state; the thread starts only if that works.
  Result<> start();
  void stop();

  // From any thread. `reply` runs on the core's thread after the commit; it may be null.
  void happen(cluster::Event event, Reply reply);
  // Reads the committed state, in order with the events.
  void ask(Query query);
  // Of what is over. Any thread.
  const cluster::Retention& keep() const { return turns_.keep(); }

  // Whether anybody wants to hear of changes: their JSON is made only then.
  std::atomic<int> watchers{0};

 private:
  void run();
  // False when the core is to stop and nothing waits any more.
  bool take(std::vector<driver::Item>& items);
  void log_health(bool was_well) const;

  Deliver deliver_;
  Ended ended_;
  driver::Turns turns_;

  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<driver::Item> waiting_;
  bool missed_ = false;  // something that needs no answer was dropped
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::controller
