// A store that can be asked, while a call to it has not come back, how long that has been so: a disk that
// hangs says nothing by itself. The calls are made by one thread, the question comes from any.
#pragma once

#include <atomic>
#include <functional>

#include "base/time.hpp"
#include "control/store/store.hpp"

namespace tutti::controller {

class WatchedStore final : public store::Store {
 public:
  using Clock = std::function<Instant()>;  // from any thread; only goes forward

  WatchedStore(store::Store& store, Clock clock) : store_(store), clock_(std::move(clock)) {}

  // Since when a call has waited; zero: none does.
  Instant waits_since() const { return Instant(Duration(since_.load())); }

  Result<std::uint64_t> read(const Each& each) override;
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override;
  store::CommitResult commit_from_reserve(std::uint64_t revision,
                                          std::span<const store::Write> writes) override;
  Result<> tidy() override;

 private:
  template <class Ask>
  auto watch(Ask ask);

  store::Store& store_;
  Clock clock_;
  std::atomic<Duration::rep> since_{0};
};

}  // namespace tutti::controller
