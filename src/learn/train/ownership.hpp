// The run's folder is this process's: taken from who is there no more, kept by a heartbeat of a thread of its
// own, given back at the end. Rank 0 has it for its gang. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/time.hpp"
#include "learn/checkpoint/owner.hpp"

namespace tutti::train {

struct OwnershipOptions {
  Duration beat_every = std::chrono::seconds(5);
  // An owner that has not beaten for so long, by the clock of the one who looks, is dead. Clocks of servers
  // are not compared.
  Duration dead_after = std::chrono::seconds(30);
  bool take_over = false;  // from whoever is not newer, at once
  // The newer one that it may pass over once that one is gone: its claim was there when this one was
  // submitted, with the word to take the folder. So it is after an older copy of a store gives out lower
  // numbers.
  std::optional<checkpoint::Fence> over{};
  // The other ranks look for its file for so long: a shared file system may show a new one late.
  Duration seen_within = std::chrono::seconds(75);
};

// A folder, whatever its path: one that is mounted over it or put in its place is another one.
struct FolderId {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const FolderId&, const FolderId&) = default;
};

class Ownership {
 public:
  // At once if nobody has the folder, or an older attempt of the same job; else as soon as the owner proves
  // dead. An owner that lives is an error that names it, and so is a newer one that has claimed the
  // checkpoints: who comes back after it takes nothing from it.
  static Result<std::unique_ptr<Ownership>> take(const std::string& run, checkpoint::Fence fence,
                                                 const std::string& node,
                                                 const OwnershipOptions& options = {});
  ~Ownership();
  Ownership(const Ownership&) = delete;
  Ownership& operator=(const Ownership&) = delete;

  // Who has taken it from this one, if somebody has: `invalid` if that is another job, from which no later
  // attempt takes it back.
  std::optional<Error> lost() const;
  const std::string& token() const { return owner_.token; }

 private:
  Ownership(std::string run, checkpoint::Owner owner, files::FileDescriptor file, Duration beat_every);
  void keep(Duration beat_every);
  void look();
  void make_again();
  void lose_to(const checkpoint::Fence& fence, const std::string& who);

  std::string run_;
  checkpoint::Owner owner_;
  std::optional<FolderId> folder_;                   // which one lay at that path when it was taken
  std::optional<checkpoint::Fence> claimed_before_;  // by whom the checkpoints were when it was taken
  files::FileDescriptor file_;                       // of the thread
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::optional<Error> lost_;
  std::thread thread_;
};

}  // namespace tutti::train
