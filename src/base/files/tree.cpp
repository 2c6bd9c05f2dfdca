#include "base/files/tree.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tutti::files {

std::uint64_t mount_of(const FileDescriptor& folder) {
  struct statx known {};
  if (statx(folder.get(), "", AT_EMPTY_PATH, STATX_MNT_ID, &known) != 0) return 0;
  return (known.stx_mask & STATX_MNT_ID) != 0 ? known.stx_mnt_id : 0;
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
