#include "base/files/tree.hpp"

#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace tutti::files {

std::uint64_t mount_of(const FileDescriptor& folder) {
  struct statx known {};
  if (statx(folder.get(), "", AT_EMPTY_PATH, STATX_MNT_ID, &known) != 0) return 0;
  return (known.stx_mask & STATX_MNT_ID) != 0 ? known.stx_mnt_id : 0;
}

// Where the kernel cannot (before 5.6), or may not be asked, one plain name leads nowhere else either.
FileDescriptor open_below(const FileDescriptor& folder, const std::string& name, int flags) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    errno = EINVAL;
    return {};
  }
  open_how how{};
  how.flags = static_cast<unsigned>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  FileDescriptor found(static_cast<int>(syscall(SYS_openat2, folder.get(), name.c_str(), &how, sizeof how)));
  if (found.valid() || (errno != ENOSYS && errno != EPERM)) return found;
  found = FileDescriptor(openat(folder.get(), name.c_str(), flags | O_NOFOLLOW));
  if (!found.valid() || mount_of(found) == mount_of(folder)) return found;
  errno = EXDEV;
  return {};
}

Listing list_open_folder(const FileDescriptor& folder) {
  const int listed = openat(folder.get(), ".", folder_flags);
  if (listed < 0) return nullptr;
  Listing listing(fdopendir(listed));
  if (!listing) {
    close(listed);
    errno = ENOMEM;
  }
  return listing;
}

}  // namespace tutti::files
