#include "comm/watchdog.hpp"

#include <algorithm>

namespace tutti::comm {
namespace {

constexpr auto pace = std::chrono::milliseconds(1);
constexpr int idle_looks_max = 50;
// Questions to the device's libraries cost more than a look.
constexpr std::uint64_t looks_between_questions = 100;
// The caller's own kernels, which an operation begins after, may take this long.
constexpr auto begin_time_max = std::chrono::minutes(10);
// A device that has been let go and does not finish is given up.
constexpr auto release_time_max = std::chrono::seconds(10);

std::int64_t since_epoch_ns(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::know(std::weak_ptr<Watched> group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& known) { return known.expired(); });
  groups_.push_back(std::move(group));
}

bool Watchdog::poisoned() {
  const std::lock_guard lock(mutex_);
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& known) {
    const auto group = known.lock();
    return group && group->poisoned();
  });
}

void Watchdog::watch(Watch watch) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(watch));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    wake = std::exchange(asleep_, false);
  }
  if (wake) wake_.notify_one();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  int idle_looks = 0;
  while (!stopping_ || !added_.empty() || !held_.empty()) {
    const auto now = Clock::now();
    for (Watch& watch : added_) held_.push_back({std::move(watch), now});
    added_.clear();
    idle_looks = held_.empty() ? idle_looks + 1 : 0;
    lock.unlock();
    ++looks_;
    std::erase_if(held_, [&](Held& held) { return !look(held, now); });
    if (fault_.raised()) let_go(now);
    lock.lock();
    if (idle_looks > idle_looks_max && added_.empty() && !stopping_) {
      asleep_ = true;
      wake_.wait(lock, [&] { return !asleep_ || stopping_; });
      idle_looks = 0;
    } else if (!stopping_ || !held_.empty()) {
      lock.unlock();
      std::this_thread::sleep_for(pace);
      lock.lock();
    }
  }
}

bool Watchdog::look(Held& held, Clock::time_point now) {
  const Watch& watch = held.watch;
  if (!held.begun && watch.of->began(watch.ticket)) {
    held.begun = true;
    held.since = now;
    duties_.started(watch.record, since_epoch_ns(now));
  }
  if (watch.of->finished(watch.ticket)) {
    duties_.ended(watch.record, since_epoch_ns(now));
    return false;
  }
  if (fault_.raised()) return true;
  std::string problem;
  const bool late = held.begun && now - held.since >= watch.deadline;
  if (late || looks_ % looks_between_questions == 0) problem = watch.of->problem();
  if (problem.empty() && !held.begun && now - held.since >= begin_time_max)
    problem = "the device does not finish what the operation waits for";
  if (!late && problem.empty()) return true;
  duties_.blame(watch.operation, since_epoch_ns(now) - since_epoch_ns(held.since),
                problem.empty() ? Outcome::late(watch.of->missing(watch.ticket)) : Outcome::failed(problem));
  return true;
}

void Watchdog::let_go(Clock::time_point now) {
  if (held_.empty()) return;
  if (released_since_ == Clock::time_point{}) released_since_ = now;
  for (const Held& held : held_) held.watch.of->release();
  if (now - released_since_ >= release_time_max) held_.clear();
}

}  // namespace tutti::comm
