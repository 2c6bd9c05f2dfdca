#include "node/agent/known_change.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/files/descriptor.hpp"

namespace tutti::agent {

std::optional<Instant> known_change(const std::string& folder) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_CACHED;
  files::FileDescriptor known(
      static_cast<int>(syscall(SYS_openat2, AT_FDCWD, folder.c_str(), &how, sizeof how)));
  if (!known.valid() && (errno == ENOSYS || errno == EINVAL))
    known = files::FileDescriptor(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct statx status {};
  if (!known.valid() || statx(known.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MTIME, &status) != 0)
    return std::nullopt;
  return Instant(std::chrono::seconds(status.stx_mtime.tv_sec) +
                 std::chrono::nanoseconds(status.stx_mtime.tv_nsec));
}

}  // namespace tutti::agent
