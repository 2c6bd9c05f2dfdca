// The lock on an agent's folder: two agents on one folder would both answer for its ranks. It ends with the
// process that took it, also on kill -9, and excludes other processes only. One thread at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::agent {

class FolderLock {
 public:
  FolderLock(FolderLock&&) noexcept = default;
  FolderLock& operator=(FolderLock&&) = delete;
  // It is let go in order.
  ~FolderLock();

  // Makes the folder if need be. Refuses at once if another process has the lock.
  static Result<FolderLock> take(const std::string& folder);

  // The agent that had it before and has not let go of it in order, by its pid: it was killed, or the machine
  // stopped. 0 if there is none.
  pid_t lost_by() const { return lost_by_; }

  // The agent that has it, by its pid: 0 if it is of another host or pid namespace, nothing if none has it.
  static std::optional<pid_t> holder_of(const std::string& folder);

 private:
  explicit FolderLock(files::FileDescriptor file);

  files::FileDescriptor file_;  // holds the pid of who has the lock
  pid_t lost_by_ = 0;
};

}  // namespace tutti::agent
