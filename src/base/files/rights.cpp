#include "base/files/rights.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "base/files/names.hpp"

namespace tutti::files {
namespace {

void restore_rights_at(int above, const char* name) {
  const FileDescriptor found(openat(above, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!found.valid() || fstat(found.get(), &status) != 0 || (status.st_mode & S_IRWXU) == S_IRWXU) return;
  // Not by its path, where a link may be by now; what was opened so has no fchmod().
  const std::string held = "/proc/self/fd/" + std::to_string(found.get());
  static_cast<void>(chmod(held.c_str(), (status.st_mode & 07777) | S_IRWXU));
}

}  // namespace

void restore_rights(const std::string& folder) { restore_rights_at(AT_FDCWD, folder.c_str()); }

void restore_rights_in(const FileDescriptor& folder, const std::string& name) {
  restore_rights_at(folder.get(), name.c_str());
}

// Into another folder, it is written itself: there is a new one above it.
Result<> move_folder(const std::string& from, const std::string& to) {
  int why = rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  if (why == EACCES) {
    restore_rights(from);
    why = rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  }
  struct stat status {};
  const bool is_gone = why == ENOENT && lstat(from.c_str(), &status) != 0 && errno == ENOENT;
  if (why == 0 || is_gone) return {};
  return failed_errno("cannot move " + printable(from) + " to " + printable(to), why);
}

}  // namespace tutti::files
