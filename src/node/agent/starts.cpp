#include "node/agent/starts.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::agent {

using keeper::RankKey;

// Shared with the thread that works on it.
struct Starts::Start {
  enum class Phase { waiting, working, running, given_up };

  // False: nobody wants it any more.
  bool move_to(Phase next) {
    const std::lock_guard lock(mutex);
    if (phase == Phase::given_up) return false;
    phase = next;
    if (next == Phase::working) since = Clock::now();
    return true;
  }
  // True if it is sure that it never runs.
  bool give_up() {
    const std::lock_guard lock(mutex);
    if (phase != Phase::waiting && phase != Phase::working) return false;
    phase = Phase::given_up;
    return true;
  }

  bool is_given_up() const {
    const std::lock_guard lock(mutex);
    return phase == Phase::given_up;
  }

  mutable std::mutex mutex;
  Phase phase = Phase::waiting;
  Clock::time_point since = Clock::now();  // when it was asked for, then when a thread began with it
};

Starts::Starts(net::Loop& loop, StartLimits limits, Done done)
    : loop_(loop), limits_(limits), done_(std::move(done)), lane_(loop, limits.threads_max) {}

void Starts::begin(const RankKey& key, Work work) {
  const auto [at, added] = starts_.try_emplace(key);
  if (!added) {
    loop_.post([this, key] { done_(key, failed("an earlier start of it does not come back")); });
    return;
  }
  at->second = std::make_shared<Start>();
  if (!timer_) timer_ = loop_.after(limits_.look_every, [this] { look(); });
  const auto run = [this, key, start = at->second, work = std::move(work)]() -> Lane::Then {
    Result<std::shared_ptr<StartedShim>> outcome = failed("it was given up");
    if (start->move_to(Start::Phase::working)) {
      auto started = work([&start] { return start->move_to(Start::Phase::running); });
      if (started) {
        outcome = std::make_shared<StartedShim>(std::move(*started));
      } else {
        outcome = std::move(started).error();
      }
    }
    return [this, key, outcome = std::move(outcome)] { came_back(key, outcome); };
  };
  lane_.run(run, [this, key](const std::string& why) { came_back(key, failed(why)); });
}

bool Starts::stop(const RankKey& key) {
  const auto found = starts_.find(key);
  return found != starts_.end() && found->second->give_up();
}

void Starts::came_back(const RankKey& key, Result<std::shared_ptr<StartedShim>> outcome) {
  last_back_ = Clock::now();
  const auto start = starts_.extract(key);
  // What was given up has been told already.
  if (!start.mapped()->is_given_up()) done_(key, std::move(outcome));
}

Starts::Clock::time_point Starts::quiet_since(const Start& start) const {
  const std::lock_guard lock(start.mutex);
  return start.phase == Start::Phase::waiting ? std::max(start.since, last_back_) : start.since;
}

void Starts::look() {
  timer_.reset();
  if (starts_.empty()) return;
  timer_ = loop_.after(limits_.look_every, [this] { look(); });
  const auto now = Clock::now();
  std::vector<RankKey> given_up;
  for (const auto& [key, start] : starts_) {
    if (now - quiet_since(*start) > limits_.time_max && start->give_up()) given_up.push_back(key);
  }
  for (const RankKey& key : given_up)
    done_(key, failed("it took longer than " + format_duration(limits_.time_max) + " to start it"));
}

std::string Starts::illness() const {
  const auto now = Clock::now();
  const bool slow = std::any_of(starts_.begin(), starts_.end(), [&](const auto& start) {
    return now - quiet_since(*start.second) > limits_.slow;
  });
  return slow ? "it takes longer than " + format_duration(limits_.slow) + " to start a rank" : "";
}

}  // namespace tutti::agent
