// The controller's disk: a store in memory that fails as disks do. A commit may fail, or land and yet not be
// confirmed; the process may die in the middle of one. What was confirmed is never lost. One thread.
#pragma once

#include <cstdint>

#include "control/store/memory/memory_store.hpp"

namespace tutti::sim {

class FaultyDisk final : public store::Store {
 public:
  enum class Mood {
    well,
    full,       // commits fail and leave nothing, but for those that free room
    uncertain,  // commits fail and have landed
    dead,       // as full, and nothing can be read
  };
  // What happens to the process at its next commit.
  enum class Death { none, before_commit, after_commit };

  Result<std::uint64_t> read(const Each& each) override;
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override;
  // A full one has room put aside.
  store::CommitResult commit_from_reserve(std::uint64_t revision,
                                          std::span<const store::Write> writes) override;

  void set_mood(Mood mood) { mood_ = mood; }
  Mood mood() const { return mood_; }
  void kill_at_next_commit(Death death) { death_ = death; }
  // Somebody else writes: the next commit is a conflict.
  void disturb() {
    store_.fail_next(store::CommitResult::Status::conflict, false);
    disturbed_ = true;
  }
  // Commits at which the process died or that were disturbed.
  std::uint64_t hits() const { return hits_; }

  // True once after a commit at which the process died.
  bool process_died();

  // For tests of the checks: it confirms what it has not stored.
  enum class Lie { none, always, before_death };
  void set_lie(Lie lie) { lie_ = lie; }

  // What is on the disk, whatever its mood.
  store::Contents contents() { return *store_.load(); }

 private:
  store::CommitResult land(std::uint64_t revision, std::span<const store::Write> writes);

  store::MemoryStore store_;
  Mood mood_ = Mood::well;
  Death death_ = Death::none;
  bool died_ = false;
  bool disturbed_ = false;
  std::uint64_t hits_ = 0;
  Lie lie_ = Lie::none;
};

}  // namespace tutti::sim
