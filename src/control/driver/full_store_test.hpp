// A store whose disk can be full, with a reserve. For tests.
#pragma once

#include "control/store/memory/memory_store.hpp"

namespace tutti::driver {

class FullStore final : public store::Store {
 public:
  Result<std::uint64_t> read(const Each& each) override {
    ++loads;
    return inner_.read(each);
  }
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override {
    if (full) return {store::CommitResult::Status::unknown, 0, "the disk is full"};
    ++commits;
    return inner_.commit(revision, writes);
  }
  store::CommitResult commit_from_reserve(std::uint64_t revision,
                                          std::span<const store::Write> writes) override {
    ++commits;
    auto done = inner_.commit(revision, writes);
    done.from_reserve = full;
    if (full) done.why = "the disk is full";
    return done;
  }

  void fail_next(store::CommitResult::Status status, bool landed) { inner_.fail_next(status, landed); }

  bool full = false;
  int loads = 0;
  int commits = 0;  // that were done

 private:
  store::MemoryStore inner_;
};

}  // namespace tutti::driver
