#include "serve/server/workshop.hpp"

#include <iterator>
#include <new>

#include "base/check.hpp"
#include "base/clock/clock.hpp"
#include "serve/program/within_memory.hpp"

namespace tutti::serve {

Workshop::Workshop(const Bounds& bounds) : bounds_(bounds), waiting_(bounds.waiting_max) {
  TUTTI_CHECK(bounds.threads >= 2);
  try {
    for (std::size_t nth = 0; nth < bounds.threads; ++nth) threads_.emplace_back([this] { work(); });
  } catch (...) {
    end_all();  // those that could be started
    throw;
  }
}

Workshop::~Workshop() { end_all(); }

void Workshop::end_all() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  stopped_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workshop::give(Errand errand) {
  // What takes memory is made first: an errand for which there is none has taken no place.
  std::map<std::string, Line> line;
  line.try_emplace(errand.owner);
  std::list<std::string> turn{errand.owner};
  std::list<Errand> given;
  given.push_back(std::move(errand));
  {
    const std::scoped_lock lock(mutex_);
    if (!waiting_.take(turn.front())) return false;
    lines_.merge(line);
    auto& waiting = lines_.find(turn.front())->second.waiting;
    if (waiting.empty()) turns_.splice(turns_.end(), turn);
    waiting.splice(waiting.end(), given);
  }
  given_.notify_one();
  return true;
}

void Workshop::drop_abandoned() {
  std::list<Errand> dropped;  // what they hold is let go without the lock
  const std::scoped_lock lock(mutex_);
  for (auto line = lines_.begin(); line != lines_.end();) {
    auto& waiting = line->second.waiting;
    const bool had_turn = !waiting.empty();
    for (auto errand = waiting.begin(); errand != waiting.end();) {
      const auto next = std::next(errand);
      if (errand->abandoned.stop_requested()) dropped.splice(dropped.end(), waiting, errand);
      errand = next;
    }
    if (had_turn && waiting.empty()) std::erase(turns_, line->first);
    const bool is_over = waiting.empty() && line->second.running == 0;
    line = is_over ? lines_.erase(line) : std::next(line);
  }
  for (const Errand& errand : dropped) waiting_.give_back(errand.owner);
}

std::optional<Errand> Workshop::take() {
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    Line& line = lines_.find(*turn)->second;
    if (line.running + 1 >= bounds_.threads) continue;
    Errand errand = std::move(line.waiting.front());
    line.waiting.pop_front();
    waiting_.give_back(errand.owner);
    ++line.running;
    if (line.waiting.empty()) {
      turns_.erase(turn);
    } else {
      turns_.splice(turns_.end(), turns_, turn);
    }
    return errand;
  }
  return std::nullopt;
}

void Workshop::done(const std::string& owner) {
  const std::scoped_lock lock(mutex_);
  const auto line = lines_.find(owner);
  if (--line->second.running == 0 && line->second.waiting.empty()) lines_.erase(line);
}

void Workshop::carry_out(const Errand& errand) {
  const auto is_wanted = [&] { return !errand.abandoned.stop_requested(); };
  for (const auto begun = SteadyClock::now(); SteadyClock::now() - begun < bounds_.patience;) {
    try {
      if (is_wanted()) errand.task();
      return;
    } catch (const std::bad_alloc&) {
      std::unique_lock lock(mutex_);
      if (stopped_.wait_for(lock, memory_pause, [&] { return stopping_; })) return;
    }
  }
  if (errand.lost) {
    patiently([&] {
      if (is_wanted()) errand.lost();
    });
  }
}

void Workshop::work() {
  for (;;) {
    std::optional<Errand> errand;
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [&] { return stopping_ || (errand = take()).has_value(); });
      if (stopping_) return;
    }
    carry_out(*errand);
    done(errand->owner);
  }
}

}  // namespace tutti::serve
