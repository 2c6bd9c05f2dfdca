#include "node/agent/device_watch.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log/log.hpp"

namespace tutti::agent {

// The thread may outlive the watch, if the driver does not answer.
struct DeviceWatch::Shared {
  DevicePace pace;
  Look look;
  Found found;
  std::mutex mutex;
  std::condition_variable woken;
  net::Loop* loop = nullptr;  // null: the watch is over
  bool wanted = false;
};

DeviceWatch::DeviceWatch(net::Loop& loop, Look look, Found found, DevicePace pace) {
  if (!look) return;
  shared_ = std::make_shared<Shared>();
  shared_->pace = pace;
  shared_->look = std::move(look);
  shared_->found = std::move(found);
  shared_->loop = &loop;
  try {
    std::thread([shared = shared_] { run(shared); }).detach();
  } catch (const std::system_error& why) {
    log::warning("devices are not looked at again: no thread can be started: {}", why.what());
  }
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

// A driver that throws, or want of memory, ends no agent: nothing is known then, and all stays as it was.
std::optional<std::vector<cluster::Device>> DeviceWatch::looked(const Look& look) {
  try {
    return look();
  } catch (const std::exception& why) {
    log::error("the devices could not be looked at: {}", why.what());
    return std::nullopt;
  }
}

void DeviceWatch::run(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  const auto over = [&] { return shared->loop == nullptr; };
  for (;;) {
    if (shared->woken.wait_for(lock, shared->pace.again, over)) return;
    shared->woken.wait_for(lock, shared->pace.every, [&] { return over() || shared->wanted; });
    if (over()) return;
    shared->wanted = false;
    lock.unlock();
    const auto devices = looked(shared->look);
    lock.lock();
    if (over()) return;
    if (devices) shared->loop->post([found = shared->found, devices = *devices] { found(devices); });
  }
}

}  // namespace tutti::agent
