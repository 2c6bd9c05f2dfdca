// A store that lives as long as its object: for tests and the simulator, which need commits that fail on
// request. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "control/store/store.hpp"

namespace tutti::store {

class MemoryStore final : public Store {
 public:
  Result<std::uint64_t> read(const Each& each) override;
  CommitResult commit(std::uint64_t revision, std::span<const Write> writes) override;

  // The next commit at the right revision answers `status` instead of `done`. An unknown one has `landed` or
  // not; before a conflict another writer moves the revision on, and nothing of the commit lands.
  void fail_next(CommitResult::Status status, bool landed);

 private:
  struct Fault {
    CommitResult::Status status;
    bool landed;
  };

  void apply(std::span<const Write> writes);

  Contents contents_;
  std::optional<Fault> fault_;
};

}  // namespace tutti::store
