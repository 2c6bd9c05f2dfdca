#include "node/agent/device_watch.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace tutti::agent {

// The thread may outlive the watch, if the driver does not answer.
struct DeviceWatch::Shared {
  Look look;
  Found found;
  std::mutex mutex;
  std::condition_variable woken;
  net::Loop* loop = nullptr;  // null: the watch is over
  bool wanted = false;
};

DeviceWatch::DeviceWatch(net::Loop& loop, Look look, Found found) {
  if (!look) return;
  shared_ = std::make_shared<Shared>();
  shared_->look = std::move(look);
  shared_->found = std::move(found);
  shared_->loop = &loop;
  std::thread([shared = shared_] { run(shared); }).detach();
}

DeviceWatch::~DeviceWatch() {
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->loop = nullptr;
  shared_->woken.notify_one();
}

void DeviceWatch::look_soon() {
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->wanted = true;
  shared_->woken.notify_one();
}

void DeviceWatch::run(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  const auto over = [&] { return shared->loop == nullptr; };
  for (;;) {
    if (shared->woken.wait_for(lock, devices_looked_at_again, over)) return;
    shared->woken.wait_for(lock, devices_looked_at_every, [&] { return over() || shared->wanted; });
    if (over()) return;
    shared->wanted = false;
    lock.unlock();
    const auto devices = shared->look();
    lock.lock();
    if (over()) return;
    shared->loop->post([found = shared->found, devices] { found(devices); });
  }
}

}  // namespace tutti::agent
