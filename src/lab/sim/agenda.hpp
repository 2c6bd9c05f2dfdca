// Virtual time: what is to happen, in the order in which it happens. Things of the same instant happen in the
// order in which they were put here, so one history follows from one seed. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/time.hpp"

namespace tutti::sim {

class Agenda {
 public:
  using Task = std::function<void()>;

  // Since the beginning of the world.
  Duration now() const { return now_; }
  void after(Duration delay, Task task);
  // Runs the next task if it is due by then; else time goes on to `until`.
  bool run_next(Duration until);

 private:
  struct Entry {
    Duration at;
    std::uint64_t number;
    Task task;
  };
  static bool later(const Entry& a, const Entry& b);

  Duration now_{};
  std::uint64_t next_number_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace tutti::sim
