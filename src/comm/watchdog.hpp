// Holds the deadlines of operations that run on a device, where nobody waits for them: it looks at their
// numbers at a calm pace, tells the flight recorder when they begin and end, finds out who is to blame when
// one is late, and after a fault lets go what still waits. One thread of its own. Any thread may call it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/time.hpp"
#include "comm/device_line.hpp"
#include "comm/fault.hpp"
#include "comm/outcome.hpp"
#include "comm/recorder.hpp"

namespace tutti::comm {

// A group's operations on a device. Called by the watchdog's thread while others put more of them there.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual bool began(const Ticket& ticket) const = 0;
  virtual bool finished(const Ticket& ticket) const = 0;
  virtual int missing(const Ticket& ticket) const = 0;
  // What the device's libraries say went wrong; "" if nothing has.
  virtual std::string problem() = 0;
  // After a fault, and again until all is finished.
  virtual void release() = 0;
  // Whether another rank has said that nothing of it is to be believed any more.
  virtual bool poisoned() const = 0;
};

class Watchdog {
 public:
  struct Duties {
    std::function<void(std::uint64_t record, std::int64_t now_ns)> started;
    std::function<void(std::uint64_t record, std::int64_t now_ns)> ended;
    // Raises the fault.
    std::function<void(const OperationRecord&, std::int64_t waited_ns, const Outcome&)> blame;
  };
  struct Watch {
    std::shared_ptr<Watched> of;
    Ticket ticket;
    std::uint64_t record = 0;  // in the flight recorder
    OperationRecord operation;
    Duration deadline{};  // from when it begins on the device
  };

  Watchdog(const Fault& fault, Duties duties) : fault_(fault), duties_(std::move(duties)) {}
  // Waits for what is still under way: it ends, by itself or by its deadline.
  ~Watchdog();

  void watch(Watch watch);
  void know(std::weak_ptr<Watched> group);
  bool poisoned();

 private:
  struct Held {
    Watch watch;
    Clock::time_point since;
    bool begun = false;
  };

  void run();
  // False if it has ended.
  bool look(Held& held, Clock::time_point now);
  void let_go(Clock::time_point now);

  const Fault& fault_;
  Duties duties_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Watch> added_;
  std::vector<std::weak_ptr<Watched>> groups_;
  bool asleep_ = false;
  bool stopping_ = false;
  std::thread thread_;
  // Of the thread alone.
  std::deque<Held> held_;
  std::uint64_t looks_ = 0;
  Clock::time_point released_since_{};
};

}  // namespace tutti::comm
