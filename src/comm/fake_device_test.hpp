// A device for tests: a stream is a thread of the host, device memory is the host's.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/device_queue.hpp"

namespace tutti::comm {

class FakeQueue : public DeviceQueue {
 public:
  FakeQueue() : thread_([this] { run(); }) {}
  ~FakeQueue() override {
    static_cast<void>(put({}));
    thread_.join();
  }

  Result<> copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    return put([=] { std::memcpy(to, from, bytes); });
  }
  Result<> reduce(const Reduce& how, std::byte* target, std::span<const std::byte* const> sources,
                  std::size_t count) override {
    return put([how, target, all = std::vector(sources.begin(), sources.end()), count] {
      comm::reduce(how, target, all, count);
    });
  }
  Result<> flags(std::span<const FlagStep> steps) override {
    return put([all = std::vector(steps.begin(), steps.end())] {
      for (const FlagStep& step : all) {
        if (step.kind == FlagStep::Kind::write) step.flag->store(step.value, std::memory_order_release);
        while (step.kind == FlagStep::Kind::wait &&
               static_cast<std::int32_t>(step.flag->load(std::memory_order_acquire) - step.value) < 0) {
          std::this_thread::yield();
        }
      }
    });
  }
  Result<> put(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    more_.notify_one();
    return {};
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [&] { return !work_.empty(); });
      const auto next = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!next) return;
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

}  // namespace tutti::comm
