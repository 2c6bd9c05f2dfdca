#include "lab/sim/faulty_disk.hpp"

#include <utility>

namespace tutti::sim {

using store::CommitResult;

Result<std::uint64_t> FaultyDisk::read(const Each& each) {
  if (mood_ == Mood::dead) return failed("the disk cannot be read");
  return store_.read(each);
}

CommitResult FaultyDisk::commit(std::uint64_t revision, std::span<const store::Write> writes) {
  const Death death = std::exchange(death_, Death::none);
  died_ = died_ || death != Death::none;
  hits_ += death != Death::none ? 1U : 0U;
  if (death == Death::before_commit && lie_ == Lie::before_death)
    return {CommitResult::Status::done, revision + 1, ""};
  if (death == Death::before_commit) return {CommitResult::Status::unknown, 0, "the process died"};
  if (death == Death::after_commit) return land(revision, writes);
  switch (mood_) {
    case Mood::well:
      return land(revision, writes);
    case Mood::full:
    case Mood::dead:
      return {CommitResult::Status::unknown, 0, "the disk is full"};
    case Mood::uncertain: {
      CommitResult landed = land(revision, writes);
      if (landed.status != CommitResult::Status::done) return landed;
      return {CommitResult::Status::unknown, 0, "the disk does not answer"};
    }
  }
  return {CommitResult::Status::unknown, 0, ""};
}

CommitResult FaultyDisk::commit_from_reserve(std::uint64_t revision, std::span<const store::Write> writes) {
  if (mood_ != Mood::full || death_ != Death::none) return commit(revision, writes);
  CommitResult landed = land(revision, writes);
  if (landed.status == CommitResult::Status::done) {
    landed.from_reserve = true;
    landed.why = "the disk is full";
  }
  return landed;
}

CommitResult FaultyDisk::land(std::uint64_t revision, std::span<const store::Write> writes) {
  hits_ += std::exchange(disturbed_, false) ? 1U : 0U;
  return lie_ == Lie::always ? store_.commit(revision, {}) : store_.commit(revision, writes);
}

bool FaultyDisk::process_died() { return std::exchange(died_, false); }

}  // namespace tutti::sim
