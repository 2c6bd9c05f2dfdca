// What walks through trees by descriptors share. Any thread.
#pragma once

#include <dirent.h>
#include <fcntl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/files/descriptor.hpp"

namespace tutti::files {

constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

// The mount that a folder is of; 0 where the kernel does not tell (before 5.8).
std::uint64_t mount_of(const FileDescriptor& folder);

// What has this name in an open folder and nowhere else: no link is followed, and no other disk entered. Else
// errno says why: ELOOP or ENOTDIR for a link, EXDEV for a disk.
FileDescriptor open_below(const FileDescriptor& folder, const std::string& name, int flags);

struct CloseListing {
  void operator()(DIR* listing) const { closedir(listing); }
};
using Listing = std::unique_ptr<DIR, CloseListing>;

// The names in an open folder, from the first on; null with errno if that cannot be.
Listing list_open_folder(const FileDescriptor& folder);

}  // namespace tutti::files
