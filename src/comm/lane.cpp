#include "comm/lane.hpp"

#include "comm/cuda.hpp"

namespace tutti::comm {
namespace {

// Large operations are worth waking a thread for at once, unless their callers have been seen to wait right
// away.
constexpr std::size_t background_bytes_min = std::size_t{256} << 10;
// What nobody has begun after this time is begun by the lane's thread.
constexpr auto unclaimed_max = std::chrono::milliseconds(1);
// The lane's thread looks for such work as long as the lane was used lately.
constexpr auto look_interval = std::chrono::milliseconds(2);
constexpr int quiet_looks_max = 25;

}  // namespace

Work::State::~State() {
  if (ready != nullptr) cuda::driver()->event_destroy(ready);
}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    while (!queue_.empty() && queue_.back()->deferred) queue_.pop_back();  // whoever wanted it is gone
  }
  thread_wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Lane::push(const std::shared_ptr<Work::State>& work, const std::function<void(Work::State&)>& number) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    number(*work);
    queue_.push_back(work);
    ++pushes_;
    if (work->deferred) return;
    if (!thread_.joinable()) thread_ = std::thread([this] { run_thread(); });
    wake = asleep_ || (work->call.bytes() >= background_bytes_min && !waited_inline_);
    asleep_ = asleep_ && !wake;
  }
  if (wake) thread_wake_.notify_one();
}

// Takes the first operation and runs it without the lock.
void Lane::run_front(std::unique_lock<std::mutex>& lock) {
  running_ = true;
  const std::shared_ptr<Work::State> work = queue_.front();
  lock.unlock();
  work->result = runner_(*work);
  work->done.store(true, std::memory_order_release);
  lock.lock();
  queue_.pop_front();
  running_ = false;
  changed_.notify_all();
}

void Lane::run_now(const std::shared_ptr<Work::State>& work,
                   const std::function<void(Work::State&)>& number) {
  std::unique_lock lock(mutex_);
  number(*work);
  queue_.push_back(work);
  run_until(lock, *work);
}

bool Lane::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

Result<> Lane::wait(Work::State& work) {
  if (work.done.load(std::memory_order_acquire)) return work.result;
  std::unique_lock lock(mutex_);
  run_until(lock, work);
  return work.result;
}

void Lane::run_until(std::unique_lock<std::mutex>& lock, const Work::State& work) {
  while (!work.done.load(std::memory_order_acquire)) {
    if (running_) {
      waited_inline_ = false;
      changed_.wait(lock);
    } else {
      waited_inline_ = true;
      run_front(lock);
    }
  }
}

void Lane::run_thread() {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = 0;
  int quiet = 0;
  while (!stopping_ || !queue_.empty()) {
    if (stopping_ && !running_) {
      run_front(lock);
      continue;
    }
    if (!queue_.empty() && !running_ && !queue_.front()->deferred) {
      const bool large = queue_.front()->call.bytes() >= background_bytes_min && !waited_inline_;
      if (large || Clock::now() >= queue_.front()->enqueued + unclaimed_max) {
        waited_inline_ = false;
        run_front(lock);
        continue;
      }
    }
    quiet = pushes_ == seen && queue_.empty() ? quiet + 1 : 0;
    seen = pushes_;
    if (quiet > quiet_looks_max) {
      asleep_ = true;
      thread_wake_.wait(lock, [&] { return !asleep_ || stopping_; });
      quiet = 0;
    } else {
      thread_wake_.wait_for(lock, look_interval);
    }
  }
}

}  // namespace tutti::comm
