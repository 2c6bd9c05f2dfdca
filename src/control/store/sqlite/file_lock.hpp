// An exclusive lock that lasts as long as its holder's process: the kernel releases it on kill -9 too. The
// lock file holds the holder's pid for people, and stays behind: removing it would race with the next holder.
// One thread at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.hpp"

namespace tutti::store {

class FileLock {
 public:
  // Refuses at once if somebody holds the lock.
  static Result<FileLock> take(const std::string& path);
  // Locks a file that is there, and writes nothing. Whoever removes a lock file beside it opens no door.
  static Result<FileLock> take_file(const std::string& path);

  // Who holds the lock of this file, by the pid that `lock_file` tells: 0 if it tells none, nothing if nobody
  // holds it. A pid of another host or pid namespace is one there.
  static std::optional<pid_t> holder_of(const std::string& path, const std::string& lock_file);

  // Is the locked file still the one of that name?
  bool is_at(const std::string& path) const;

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace tutti::store
