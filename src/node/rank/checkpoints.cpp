#include "node/rank/checkpoints.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/rights.hpp"
#include "base/files/tree.hpp"
#include "base/id.hpp"
#include "node/rank/leftovers.hpp"

namespace tutti::rank {
namespace {

constexpr const char* begun = "/.begun";
constexpr const char* ended = "/.ended";
constexpr const char* removed = "/.removed";  // on their way out
constexpr std::size_t folders_per_round_max = 100;
constexpr std::size_t names_looked_at_max = 10'000'000;

std::string root_of(const std::string& folder) {
  return std::filesystem::path(folder).parent_path().string();
}
std::string job_of(const std::string& folder) { return std::filesystem::path(folder).filename().string(); }

std::string mark_of(const std::string& folder, const char* kind) {
  return root_of(folder) + kind + "/" + job_of(folder);
}

// Only what the disk says is not there is missing: one that fails or does not know is no other disk.
bool is_missing(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

// The folder of such marks, opened: where those who have jobs may write above it, a link in its place leads
// nowhere.
files::FileDescriptor open_marks(const std::string& folder, const char* kind) {
  return files::FileDescriptor(
      ::open((root_of(folder) + kind).c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Not flushed: a disk that nodes share keeps what it has told another node, and no start waits for a disk
// that is busy.
Result<> set_mark(const std::string& folder, const char* kind) {
  if (auto made = files::make_folders(root_of(folder) + kind); !made) return made;
  const files::FileDescriptor marks = open_marks(folder, kind);
  const files::FileDescriptor file(::openat(marks.get(), job_of(folder).c_str(),
                                            O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file.valid()) return failed_errno("cannot make " + mark_of(folder, kind), errno);
  return {};
}

bool remove_mark(const std::string& folder, const char* kind) {
  const files::FileDescriptor marks = open_marks(folder, kind);
  return marks.valid() && ::unlinkat(marks.get(), job_of(folder).c_str(), 0) == 0;
}

// It stays away over a loss of power: a mark that came back would be obeyed.
void clear_mark(const std::string& folder, const char* kind) {
  if (remove_mark(folder, kind)) static_cast<void>(files::sync_folder(root_of(folder) + kind));
}

// A time at which nothing was saved yet, so that every later one tells that something was. Whatever a peer
// saves in this very moment is told with the next.
void mark_unused(const std::string& folder) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 0, .tv_nsec = 0}};
  static_cast<void>(::utimensat(AT_FDCWD, folder.c_str(), times, AT_SYMLINK_NOFOLLOW));
}

// Out of its place before it is removed, and then a second look: who begins meanwhile has said so before it
// uses the folder, and gets it back.
Result<> remove_one(const std::string& folder) {
  auto gone = files::make_folders(root_of(folder) + removed);
  if (!gone) return gone;
  const files::FileDescriptor on_their_way = open_marks(folder, removed);
  if (!on_their_way.valid()) return failed_errno("cannot enter " + root_of(folder) + removed, errno);
  const std::string aside = "/proc/self/fd/" + std::to_string(on_their_way.get()) + "/" + job_of(folder);
  gone = files::remove_folder(aside);
  if (gone) gone = files::move_folder(folder, aside);
  if (!gone) return std::move(gone).error().within(folder);
  if (!is_missing(mark_of(folder, begun))) {
    if (::rename(aside.c_str(), folder.c_str()) != 0)
      return failed_errno("cannot move " + root_of(folder) + removed + "/" + job_of(folder) + " back", errno);
  } else if (gone = files::remove_folder(aside); !gone) {
    return std::move(gone).error().within(folder);
  }
  clear_mark(folder, ended);
  return {};
}

}  // namespace

Error missing_checkpoints(const std::string& folder) {
  return failed("what job " + job_of(folder) + " has saved is not in " + root_of(folder) +
                " on this node: is its disk mounted?");
}

Result<> begin_checkpoints(const std::string& folder, bool expected, const std::filesystem::path& held) {
  const std::string mark = mark_of(folder, begun);
  const bool first = is_missing(mark);
  if (expected && first && is_missing(folder)) return missing_checkpoints(folder);
  if (is_missing(root_of(folder)) && !held.empty() && agent_folder_is_gone(held)) return {};
  // In this order: see remove_one().
  if (first) static_cast<void>(set_mark(folder, begun));
  clear_mark(folder, ended);
  if (files::make_folders(root_of(folder)) && ::mkdir(folder.c_str(), 0777) == 0) mark_unused(folder);
  return {};
}

// Through a descriptor: where others may write into the folder above, a link could be there the next moment.
int hand_over_checkpoints(const std::string& folder, const Account& account) {
  const files::FileDescriptor found(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!found.valid()) return errno == ELOOP || errno == ENOTDIR ? EPERM : errno == ENOENT ? 0 : errno;
  struct stat status {};
  if (::fstat(found.get(), &status) != 0) return errno;
  if (status.st_uid == account.uid) return 0;
  if (status.st_uid != ::geteuid()) return EPERM;
  const std::string held = "/proc/self/fd/" + std::to_string(found.get());
  if (::chmod(held.c_str(), 0700) != 0) return errno;
  return ::fchownat(found.get(), "", account.uid, account.gid, AT_EMPTY_PATH) == 0 ? 0 : errno;
}

// Most jobs write nothing, and an empty folder for each of them would be millions in a year. Only the end of
// the job leaves a mark, and only a folder with a mark is ever removed with what it holds.
Result<> end_checkpoints(const std::string& folder) {
  const bool full = ::rmdir(folder.c_str()) != 0 && errno == ENOTEMPTY;
  // Anew, because the age counts from this end.
  if (full) remove_mark(folder, ended);
  auto marked = full ? set_mark(folder, ended) : Result<>();
  remove_mark(folder, begun);
  return marked;
}

Result<> remove_old_checkpoints(const std::string& root, Instant ended_before) {
  const auto marks = files::list_folder(root + ended);
  if (!marks) return marks.error();
  if (!*marks) return {};
  std::size_t looked_at = 0;
  Result<> first;
  for (const std::string& job : **marks) {
    const std::string folder = root + "/" + job;
    struct stat status {};
    if (!parse_id_number(job) || ::lstat(mark_of(folder, ended).c_str(), &status) != 0) continue;
    if (Instant(std::chrono::seconds(status.st_mtim.tv_sec)) >= ended_before) continue;
    if (looked_at++ == folders_per_round_max) break;
    // It runs again, from an older copy of the controller's store.
    if (is_missing(mark_of(folder, begun))) {
      if (auto gone = remove_one(folder); !gone && first) first = std::move(gone);
    } else {
      clear_mark(folder, ended);
    }
  }
  return first;
}

Result<std::optional<std::uint64_t>> last_saved_job(const std::string& root, std::uint64_t most) {
  const files::FileDescriptor folder(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() && errno == ENOENT) return std::optional<std::uint64_t>();
  const files::Listing listing = folder.valid() ? files::list_open_folder(folder) : nullptr;
  if (!listing) return failed_errno("cannot read " + root, errno);
  std::uint64_t last = 0;
  for (std::size_t names = 0; names < names_looked_at_max; ++names) {
    errno = 0;
    const dirent* entry = ::readdir(listing.get());
    if (entry == nullptr && errno != 0) return failed_errno("cannot read " + root, errno);
    if (entry == nullptr) break;
    if (const auto job = parse_id_number(entry->d_name); job && *job <= most) last = std::max(last, *job);
  }
  return std::optional<std::uint64_t>(last);
}

}  // namespace tutti::rank
