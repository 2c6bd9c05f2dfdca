#include "node/agent/lane.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log/log.hpp"

namespace tutti::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration farewell_max = 500ms;
constexpr Duration retry_every = 200ms;  // where no thread can be had
constexpr int looks_per_patience = 4;

struct Task {
  std::string owner;
  Lane::Work work;
  Lane::Otherwise otherwise;
};

std::string shown(const std::string& owner) { return owner.empty() ? "somebody" : owner; }

// Nothing that it throws may end the agent and the lease of its node.
Lane::Then done(const Task& task) {
  try {
    return task.work();
  } catch (const std::exception& why) {
    log::error("work on the files of {} has failed: {}", shown(task.owner), why.what());
    if (!task.otherwise) return {};
    return [otherwise = task.otherwise, text = std::string(why.what())] { otherwise(text); };
  }
}

// A thread at work.
struct Place {
  std::string owner;
  Clock::time_point since;
  bool stuck = false;
};

}  // namespace

// Owned by the lane and by each of its threads, so that one that is stuck may outlive the lane.
struct Lane::State {
  std::mutex mutex;
  std::condition_variable woken;
  std::condition_variable left;
  net::Loop* loop = nullptr;  // null once the lane has gone
  LaneLimits limits;
  std::deque<Task> ready;
  // Who has work that is ready or under way, and what is to follow it.
  std::map<std::string, std::deque<Task>> owners;
  std::size_t following = 0;  // of all owners
  std::list<Place> places;
  std::size_t threads = 0;
  std::size_t idle = 0;
  std::size_t stuck = 0;

  std::size_t threads_allowed() const { return limits.threads_max + stuck; }

  void take(Task task) {
    if (!task.owner.empty()) {
      const auto [at, first] = owners.try_emplace(task.owner);
      if (!first) {
        at->second.push_back(std::move(task));
        ++following;
        return;
      }
    }
    ready.push_back(std::move(task));
    woken.notify_one();
  }

  void came_back(std::list<Place>::iterator place) {
    if (place->stuck) --stuck;
    const auto owner = owners.find(place->owner);
    if (owner != owners.end() && !owner->second.empty()) {
      ready.push_back(std::move(owner->second.front()));
      owner->second.pop_front();
      --following;
      woken.notify_one();
    } else if (owner != owners.end()) {
      owners.erase(owner);
    }
    places.erase(place);
  }
};

Lane::Lane(net::Loop& loop, LaneLimits limits) : state_(std::make_shared<State>()) {
  state_->loop = &loop;
  state_->limits = limits;
}

Lane::~Lane() {
  std::unique_lock lock(state_->mutex);
  state_->loop = nullptr;
  state_->ready.clear();
  state_->owners.clear();
  state_->woken.notify_all();
  state_->left.wait_for(lock, farewell_max, [this] { return state_->threads == 0; });
}

void Lane::run(const std::string& owner, Work work, Otherwise otherwise) {
  const std::lock_guard lock(state_->mutex);
  state_->take({owner, std::move(work), std::move(otherwise)});
  add_thread();
  if (!timer_ && state_->limits.stuck_max > 0)
    timer_ = state_->loop->after(state_->limits.patience / looks_per_patience, [this] { look(); });
}

// Where the system has no thread to give, the work waits for one of those that are there, or for the next
// try.
bool Lane::add_thread() {
  if (state_->idle >= state_->ready.size() || state_->threads >= state_->threads_allowed()) return false;
  try {
    std::thread([state = state_] { serve(state); }).detach();
    ++state_->threads;
    return true;
  } catch (const std::system_error& why) {
    if (state_->threads > 0 || retry_) return false;
    log::warning("no thread can be started: {}", why.what());
    retry_ = state_->loop->after(retry_every, [this] {
      const std::lock_guard lock(state_->mutex);
      retry_.reset();
      add_thread();
    });
    return false;
  }
}

// What is stuck gives its place to a fresh thread.
void Lane::look() {
  for (const std::string& owner : replace_stuck())
    log::warning("work on the files of {} has not come back for {}; others do not wait for it", shown(owner),
                 format_duration(state_->limits.patience));
}

// Whose work it is that is found stuck.
std::vector<std::string> Lane::replace_stuck() {
  std::vector<std::string> owners;
  const std::lock_guard lock(state_->mutex);
  timer_.reset();
  const LaneLimits& limits = state_->limits;
  const auto now = Clock::now();
  for (Place& place : state_->places) {
    if (place.stuck || state_->stuck == limits.stuck_max || now - place.since <= limits.patience) continue;
    place.stuck = true;
    ++state_->stuck;
    owners.push_back(place.owner);
  }
  for (std::size_t served = state_->idle; served < state_->ready.size() && add_thread();) ++served;
  if (!state_->places.empty() || !state_->ready.empty())
    timer_ = state_->loop->after(limits.patience / looks_per_patience, [this] { look(); });
  return owners;
}

std::size_t Lane::under_way() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ready.size() + state_->following + state_->places.size();
}

bool Lane::busy(const std::string& owner) const {
  const std::lock_guard lock(state_->mutex);
  return state_->owners.contains(owner);
}

Duration Lane::at_work(const std::string& owner) const {
  const std::lock_guard lock(state_->mutex);
  const auto place = std::find_if(state_->places.begin(), state_->places.end(),
                                  [&](const Place& at) { return at.owner == owner; });
  if (place == state_->places.end()) return {};
  return std::chrono::duration_cast<Duration>(Clock::now() - place->since);
}

bool Lane::full() const {
  const std::lock_guard lock(state_->mutex);
  return state_->limits.stuck_max > 0 && state_->stuck == state_->limits.stuck_max;
}

void Lane::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (state->loop != nullptr) {
    ++state->idle;
    state->woken.wait(lock, [&] { return state->loop == nullptr || !state->ready.empty(); });
    --state->idle;
    if (state->loop == nullptr) break;
    const Task task = std::move(state->ready.front());
    state->ready.pop_front();
    const auto place = state->places.insert(state->places.end(), {task.owner, Clock::now()});
    lock.unlock();
    Then then = done(task);
    lock.lock();
    state->came_back(place);
    if (state->loop != nullptr && then) state->loop->post(std::move(then));
    // Another has taken its place while it was stuck.
    if (state->threads > state->threads_allowed()) break;
  }
  --state->threads;
  state->left.notify_all();
}

}  // namespace tutti::agent
