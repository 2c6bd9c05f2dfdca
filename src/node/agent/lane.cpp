#include "node/agent/lane.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log/log.hpp"

namespace tutti::agent {
namespace {

constexpr Duration farewell_max = 500ms;
constexpr Duration retry_every = 200ms;  // where no thread can be had

}  // namespace

// Owned by the lane and by each of its threads, so that one that is stuck may outlive the lane.
struct Lane::State {
  std::mutex mutex;
  std::condition_variable woken;
  std::condition_variable left;
  net::Loop* loop = nullptr;  // null once the lane has gone
  std::deque<Work> waiting;
  std::size_t threads = 0;
  std::size_t threads_max = 1;
  std::size_t idle = 0;
  std::size_t working = 0;
};

Lane::Lane(net::Loop& loop, std::size_t threads_max) : state_(std::make_shared<State>()) {
  state_->loop = &loop;
  state_->threads_max = threads_max;
}

Lane::~Lane() {
  std::unique_lock lock(state_->mutex);
  state_->loop = nullptr;
  state_->waiting.clear();
  state_->woken.notify_all();
  state_->left.wait_for(lock, farewell_max, [this] { return state_->threads == 0; });
}

void Lane::run(Work work) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(std::move(work));
  state_->woken.notify_one();
  add_thread();
}

// Where the system has no thread to give, the work waits for one of those that are there, or for the next
// try.
void Lane::add_thread() {
  if (state_->idle >= state_->waiting.size() || state_->threads == state_->threads_max) return;
  try {
    std::thread([state = state_] { serve(state); }).detach();
    ++state_->threads;
  } catch (const std::system_error& why) {
    if (state_->threads > 0 || retry_) return;
    log::warning("no thread can be started: {}", why.what());
    retry_ = state_->loop->after(retry_every, [this] {
      const std::lock_guard lock(state_->mutex);
      retry_.reset();
      add_thread();
    });
  }
}

std::size_t Lane::under_way() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting.size() + state_->working;
}

void Lane::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (state->loop != nullptr) {
    ++state->idle;
    state->woken.wait(lock, [&] { return state->loop == nullptr || !state->waiting.empty(); });
    --state->idle;
    if (state->loop == nullptr) break;
    const Work work = std::move(state->waiting.front());
    state->waiting.pop_front();
    ++state->working;
    lock.unlock();
    Then then = work();
    lock.lock();
    --state->working;
    if (state->loop != nullptr && then) state->loop->post(std::move(then));
  }
  --state->threads;
  state->left.notify_all();
}

}  // namespace tutti::agent
