#include "node/agent/known_change.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/files/descriptor.hpp"

namespace tutti::agent {
namespace {

std::optional<struct statx> known_status(const std::string& folder) {
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
  return status;
}

}  // namespace

std::optional<Instant> known_change(const std::string& folder) {
  const auto status = known_status(folder);
  if (!status) return std::nullopt;
  return Instant(std::chrono::seconds(status->stx_mtime.tv_sec) +
                 std::chrono::nanoseconds(status->stx_mtime.tv_nsec));
}

std::optional<std::uint64_t> known_disk(const std::string& folder) {
  for (std::string at = folder; !at.empty(); at.resize(at.rfind('/'))) {
    const auto status = known_status(at);
    if (status) return makedev(status->stx_dev_major, status->stx_dev_minor);
    if (errno != ENOENT || at.find('/') == std::string::npos) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tutti::agent
