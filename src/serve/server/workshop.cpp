#include "serve/server/workshop.hpp"

#include <iterator>

#include "base/check.hpp"

namespace tutti::serve {

Workshop::Workshop(const Bounds& bounds) : bounds_(bounds), waiting_(bounds.waiting_max) {
  TUTTI_CHECK(bounds.threads >= 2);
  for (std::size_t nth = 0; nth < bounds.threads; ++nth) threads_.emplace_back([this] { work(); });
}

Workshop::~Workshop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workshop::give(Errand errand) {
  {
    const std::scoped_lock lock(mutex_);
    if (!waiting_.take(errand.owner)) return false;
    auto& line = lines_[errand.owner].waiting;
    if (line.empty()) turns_.push_back(errand.owner);
    line.push_back(std::move(errand));
  }
  given_.notify_one();
  return true;
}

void Workshop::drop_abandoned() {
  std::vector<Errand> dropped;  // what they hold is let go without the lock
  const std::scoped_lock lock(mutex_);
  for (auto line = lines_.begin(); line != lines_.end();) {
    std::deque<Errand> kept;
    for (Errand& errand : line->second.waiting) {
      if (errand.abandoned.stop_requested()) {
        dropped.push_back(std::move(errand));
      } else {
        kept.push_back(std::move(errand));
      }
    }
    if (kept.empty() && !line->second.waiting.empty()) std::erase(turns_, line->first);
    line->second.waiting = std::move(kept);
    const bool is_over = line->second.waiting.empty() && line->second.running == 0;
    line = is_over ? lines_.erase(line) : std::next(line);
  }
  for (const Errand& errand : dropped) waiting_.give_back(errand.owner);
}

std::optional<Errand> Workshop::take() {
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    Line& line = lines_.at(*turn);
    if (line.running + 1 >= bounds_.threads) continue;
    Errand errand = std::move(line.waiting.front());
    line.waiting.pop_front();
    waiting_.give_back(errand.owner);
    ++line.running;
    turns_.erase(turn);
    if (!line.waiting.empty()) turns_.push_back(errand.owner);
    return errand;
  }
  return std::nullopt;
}

void Workshop::done(const std::string& owner) {
  const std::scoped_lock lock(mutex_);
  const auto line = lines_.find(owner);
  if (--line->second.running == 0 && line->second.waiting.empty()) lines_.erase(line);
}

void Workshop::work() {
  for (;;) {
    std::optional<Errand> errand;
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [&] { return stopping_ || (errand = take()).has_value(); });
      if (stopping_) return;
    }
    if (!errand->abandoned.stop_requested()) errand->task();
    done(errand->owner);
  }
}

}  // namespace tutti::serve
