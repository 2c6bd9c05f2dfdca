// One command at a time starts or ends parts of the local cluster: two of them at once would each take what
// the other started for its own. Held for as long as its object lives; the kernel gives it back if the
// command dies. Used by the main thread only.
#pragma once

#include <string>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::cli {

// Longer than `tutti up` waits for its nodes.
constexpr Duration home_lock_patience = 120s;

class HomeLock {
 public:
  // Makes the folder if there is none. Waits for whoever holds the lock, and says so.
  static Result<HomeLock> take(const std::string& home, Duration patience = home_lock_patience);

 private:
  explicit HomeLock(files::FileDescriptor file) : file_(std::move(file)) {}

  files::FileDescriptor file_;
};

}  // namespace tutti::cli
