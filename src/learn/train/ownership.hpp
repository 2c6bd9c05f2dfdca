// The run's folder is this process's: taken from who is there no more, kept by a heartbeat of a thread of its
// own, given back at the end. Rank 0 has it for its gang. Any thread.
#pragma once

#include <condition_variable>
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

 private:
  Ownership(std::string run, checkpoint::Owner owner, files::FileDescriptor file, Duration beat_every);
  void keep(Duration beat_every);
  void look();
  void make_again();
  void lose_to(const checkpoint::Fence& fence, const std::string& who);

  std::string run_;
  checkpoint::Owner owner_;
  std::optional<checkpoint::Fence> claimed_before_;  // by whom the checkpoints were when it was taken
  files::FileDescriptor file_;                       // of the thread
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::optional<Error> lost_;
  std::thread thread_;
};

}  // namespace tutti::train
