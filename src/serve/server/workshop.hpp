// Threads that do what would keep the network loop waiting. Those who ask take turns, nobody is given all of
// the threads, and there is a bound on how much waits, which they share. Any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/portions.hpp"
#include "base/time.hpp"

namespace tutti::serve {

struct Errand {
  std::string owner;          // whose turn it takes
  std::stop_token abandoned;  // once it is, it does not begin
  // One that is long looks at the word itself. One that throws for want of memory is begun again after a
  // moment, and not for ever.
  std::function<void()> task;
  // Says so to whoever waits for it, when it was begun again for too long; better without any memory.
  std::function<void()> lost = nullptr;
};

// For so long an errand is begun again for which there is no memory.
inline constexpr Duration errand_patience = 30s;

class Workshop {
 public:
  struct Bounds {
    std::size_t threads = 2;        // at least two: one is always left for the others
    std::size_t waiting_max = 512;  // of all; nobody has more than three times what is left
    Duration patience = errand_patience;
  };
  explicit Workshop(const Bounds& bounds);
  // What has not begun is forgotten.
  ~Workshop();
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  // False if too many wait already.
  bool give(Errand errand);
  // Some were abandoned: they make room at once.
  void drop_abandoned();

 private:
  struct Line {
    std::list<Errand> waiting;
    std::size_t running = 0;
  };

  void work();
  void carry_out(const Errand& errand);
  void end_all();
  std::optional<Errand> take();  // nothing if nobody may begin now
  void done(const std::string& owner);

  const Bounds bounds_;
  std::mutex mutex_;  // of what follows
  std::condition_variable given_;
  std::condition_variable stopped_;    // for those who wait to begin an errand again
  std::map<std::string, Line> lines_;  // of those who wait or run
  std::list<std::string> turns_;       // those who wait, the next first
  Portions waiting_;                   // by owner
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace tutti::serve
