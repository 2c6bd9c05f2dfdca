// A store whose commits wait until they are let through, for tests of a disk that hangs.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "control/store/memory/memory_store.hpp"

namespace tutti::controller {

class SlowStore final : public store::Store {
 public:
  // Only those wait, and count, that write something under this prefix: a controller also writes of its own
  // accord.
  explicit SlowStore(std::string prefix = "") : prefix_(std::move(prefix)) {}

  Result<std::uint64_t> read(const Each& each) override { return store_.read(each); }
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override {
    std::unique_lock lock(mutex_);
    if (!prefix_.empty() &&
        !std::ranges::any_of(writes, [&](const auto& write) { return write.key.starts_with(prefix_); }))
      return store_.commit(revision, writes);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return begun_ <= let_through_; });
    return store_.commit(revision, writes);
  }
  void let_through(int commits) {
    const std::lock_guard lock(mutex_);
    let_through_ = commits;
    changed_.notify_all();
  }
  void wait_until_begun(int commits) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= commits; });
  }

 private:
  const std::string prefix_;
  store::MemoryStore store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;
  int let_through_ = 0;
};

}  // namespace tutti::controller
