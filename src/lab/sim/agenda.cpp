#include "lab/sim/agenda.hpp"

#include <algorithm>
#include <tuple>

#include "base/check.hpp"

namespace tutti::sim {

bool Agenda::later(const Entry& a, const Entry& b) {
  return std::tie(a.at, a.number) > std::tie(b.at, b.number);
}

void Agenda::after(Duration delay, Task task) {
  TUTTI_CHECK(delay >= Duration::zero(), "nothing happens in the past");
  heap_.push_back({now_ + delay, next_number_++, std::move(task)});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

bool Agenda::run_next(Duration until) {
  if (heap_.empty() || heap_.front().at > until) {
    now_ = std::max(now_, until);
    return false;
  }
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Entry next = std::move(heap_.back());
  heap_.pop_back();
  now_ = next.at;
  next.task();
  return true;
}

}  // namespace tutti::sim
