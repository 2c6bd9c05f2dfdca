#include "node/rank/checkpoints.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/rights.hpp"
#include "base/files/tree.hpp"
#include "base/id.hpp"
#include "node/rank/checkpoint_root.hpp"
#include "node/rank/leftovers.hpp"

namespace tutti::rank {
namespace {

constexpr auto begun = CheckpointMarks::begun;
constexpr auto ended = CheckpointMarks::ended;
constexpr auto removed = CheckpointMarks::removed;
constexpr std::size_t folders_per_round_max = 100;
constexpr std::size_t names_looked_at_max = 10'000'000;
constexpr mode_t own_mode = 0700;

std::string root_of(const std::string& folder) {
  return std::filesystem::path(folder).parent_path().string();
}
std::string job_of(const std::string& folder) { return std::filesystem::path(folder).filename().string(); }

// Not flushed: a disk that nodes share keeps what it has told another node, and no start waits for a disk
// that is busy.
Result<> set_mark(CheckpointRoot& root, CheckpointMarks kind, const std::string& job) {
  const auto marks = root.make_marks(kind);
  if (!marks) return marks.error();
  const files::FileDescriptor file(
      ::openat(marks->get(), job.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file.valid()) return failed_errno("cannot make " + root.named(kind) + "/" + job, errno);
  return {};
}

// `for_good`: it stays away over a loss of power, because a mark that came back would be obeyed.
void clear_mark(CheckpointRoot& root, CheckpointMarks kind, const std::string& job, bool for_good) {
  const auto marks = root.open_marks(kind);
  if (!marks || !*marks || ::unlinkat((*marks)->get(), job.c_str(), 0) != 0) return;
  if (for_good) static_cast<void>(::fsync((*marks)->get()));
}

// A time at which nothing was saved yet, so that every later one tells that something was. Whatever a peer
// saves in this very moment is told with the next.
void mark_unused(int root, const std::string& job) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 0, .tv_nsec = 0}};
  static_cast<void>(::utimensat(root, job.c_str(), times, AT_SYMLINK_NOFOLLOW));
}

// Out of its place before it is removed, and then a second look: who begins meanwhile has said so before it
// uses the folder, and gets it back.
Result<> remove_one(CheckpointRoot& root, const std::string& job) {
  const auto on_their_way = root.make_marks(removed);
  if (!on_their_way) return on_their_way.error();
  const std::string aside = "/proc/self/fd/" + std::to_string(on_their_way->get()) + "/" + job;
  auto gone = files::remove_folder(aside);
  if (gone) gone = files::move_folder(root.held(job), aside);
  if (!gone) return std::move(gone).error().within(root.named(job));
  if (!root.lacks_mark(begun, job)) {
    if (::renameat(on_their_way->get(), job.c_str(), root.folder(), job.c_str()) != 0)
      return failed_errno("cannot move " + root.named(removed) + "/" + job + " back", errno);
  } else if (gone = files::remove_folder(aside); !gone) {
    return std::move(gone).error().within(root.named(job));
  }
  clear_mark(root, ended, job, true);
  return {};
}

std::vector<std::string> names_in(const files::FileDescriptor& folder) {
  std::vector<std::string> names;
  const files::Listing listing = files::list_open_folder(folder);
  while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr)
    names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_empty(int folder) {
  const files::FileDescriptor opened(::openat(folder, ".", files::folder_flags));
  const files::Listing listing = opened.valid() ? files::list_open_folder(opened) : nullptr;
  if (!listing) return false;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return false;
  }
  return true;
}

Error missing_checkpoints(const std::string& folder) {
  return failed("what job " + job_of(folder) + " has saved is not in " + root_of(folder) +
                " on this node: is its disk mounted?");
}

Error foreign(const std::string& folder, const Account& account) {
  return invalid("the folder for its checkpoints, " + folder + ", is somebody else's than the account " +
                 account.name + "'s; whoever runs the node can hand it over (chown)");
}

// Only an empty one, which an agent has just made: of what lies in another one nobody knows whose it is. By
// its descriptor, because users may have been able to write above it.
Result<> hand_over(const CheckpointRoot& root, const std::string& job, const Account& account) {
  const files::FileDescriptor found(
      ::openat(root.folder(), job.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!found.valid() && errno == ENOENT) return {};
  const auto owner = [&found] {
    struct stat status {};
    return ::fstat(found.get(), &status) == 0 ? std::optional(status.st_uid) : std::nullopt;
  };
  const auto before = owner();
  if (before == account.uid) return {};
  if (root.users_make_theirs() || before != ::geteuid() || !is_empty(found.get())) {
    // A rank of the same job may have been handed it meanwhile, and saved something.
    if (owner() == account.uid) return {};
    return foreign(root.named(job), account);
  }
  const std::string held = "/proc/self/fd/" + std::to_string(found.get());
  if (::chmod(held.c_str(), own_mode) == 0 &&
      ::fchownat(found.get(), "", account.uid, account.gid, AT_EMPTY_PATH) == 0)
    return {};
  return failed_errno("cannot hand " + root.named(job) + " over to the account " + account.name, errno);
}

// What users have made or own is none of the agent's to begin in; a disk that fails, or tells nothing, is no
// reason to keep a rank that may save nothing.
Result<std::optional<CheckpointRoot>> open_to_begin(const std::string& folder, bool expected,
                                                    const std::filesystem::path& held) {
  auto root = CheckpointRoot::open(root_of(folder));
  if (root && !*root) {
    if (expected) return missing_checkpoints(folder);
    if (!held.empty() && agent_folder_is_gone(held)) return root;
    auto made = CheckpointRoot::make(root_of(folder));
    if (made) return std::optional<CheckpointRoot>(*std::move(made));
    root = std::move(made).error();
  }
  if (!root && root.error().code() != ErrorCode::invalid) return std::optional<CheckpointRoot>();
  // Another node may be another one's.
  if (!root) return std::move(root).error().as(ErrorCode::failed);
  return root;
}

}  // namespace

Result<BegunCheckpoints> begin_checkpoints(const std::string& folder, bool expected,
                                           const std::filesystem::path& held, const Account* account) {
  auto opened = open_to_begin(folder, expected, held);
  if (!opened) return std::move(opened).error();
  if (!*opened) return BegunCheckpoints();
  CheckpointRoot& root = **opened;
  const std::string job = job_of(folder);
  const bool first = root.lacks_mark(begun, job);
  if (expected && first && root.is_missing(job)) return missing_checkpoints(folder);
  // In this order: see remove_one().
  if (first) static_cast<void>(set_mark(root, begun, job));
  clear_mark(root, ended, job, true);
  const bool by_user = account != nullptr && root.users_make_theirs();
  const mode_t mode = account != nullptr ? own_mode : 0777;
  if (!by_user && ::mkdirat(root.folder(), job.c_str(), mode) == 0) mark_unused(root.folder(), job);
  if (account != nullptr)
    if (auto done = hand_over(root, job, *account); !done) return std::move(done).error();
  BegunCheckpoints begun_here;
  if (by_user) begun_here.above = files::FileDescriptor(::dup(root.folder()));
  return begun_here;
}

Result<> make_own_checkpoints(const BegunCheckpoints& begun_here, const std::string& folder,
                              const Account& account) {
  if (!begun_here.above.valid()) return {};
  const int root = begun_here.above.get();
  const std::string job = job_of(folder);
  if (::mkdirat(root, job.c_str(), own_mode) == 0) mark_unused(root, job);
  struct stat status {};
  const bool is_there = ::fstatat(root, job.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (is_there && (!S_ISDIR(status.st_mode) || status.st_uid != account.uid)) return foreign(folder, account);
  return {};
}

// Most jobs write nothing, and an empty folder for each of them would be millions in a year. Only the end of
// the job leaves a mark, and only a folder with a mark is ever removed with what it holds.
Result<> end_checkpoints(const std::string& folder) {
  auto opened = CheckpointRoot::open(root_of(folder));
  if (!opened) return std::move(opened).error();
  if (!*opened) return {};
  CheckpointRoot& root = **opened;
  const std::string job = job_of(folder);
  // Also where somebody has mounted something, or a disk fails: without the mark it would stay for ever.
  const bool full = ::unlinkat(root.folder(), job.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT;
  // Anew, because the age counts from this end.
  if (full) clear_mark(root, ended, job, false);
  auto marked = full ? set_mark(root, ended, job) : Result<>();
  clear_mark(root, begun, job, false);
  return marked;
}

Result<> remove_old_checkpoints(const std::string& path, Instant ended_before, std::string& tried_last) {
  auto opened = CheckpointRoot::open(path);
  if (!opened) return std::move(opened).error();
  if (!*opened) return {};
  CheckpointRoot& root = **opened;
  const auto marks = root.open_marks(ended);
  if (!marks) return marks.error();
  if (!*marks) return {};
  std::size_t tried = 0;
  Result<> first;
  // Round and round: those that cannot be removed do not keep the others.
  std::vector<std::string> jobs = names_in(**marks);
  std::rotate(jobs.begin(), std::upper_bound(jobs.begin(), jobs.end(), tried_last), jobs.end());
  for (const std::string& job : jobs) {
    struct stat status {};
    if (!parse_id_number(job) || ::fstatat((*marks)->get(), job.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    // An earlier version may have left that folder open to users.
    if (!root.is_own(status)) continue;
    if (Instant(std::chrono::seconds(status.st_mtim.tv_sec)) >= ended_before) continue;
    if (tried++ == folders_per_round_max) break;
    tried_last = job;
    // It runs again, from an older copy of the controller's store.
    if (root.lacks_mark(begun, job)) {
      if (auto gone = remove_one(root, job); !gone && first) first = std::move(gone);
    } else {
      clear_mark(root, ended, job, true);
    }
  }
  return first;
}

Result<std::optional<std::uint64_t>> last_saved_job(const std::string& path, std::uint64_t most) {
  const auto root = CheckpointRoot::open(path);
  if (!root) return root.error();
  if (!*root) return std::optional<std::uint64_t>();
  const files::FileDescriptor folder(::openat((*root)->folder(), ".", files::folder_flags));
  const files::Listing listing = folder.valid() ? files::list_open_folder(folder) : nullptr;
  if (!listing) return failed_errno("cannot read " + path, errno);
  std::uint64_t last = 0;
  for (std::size_t names = 0; names < names_looked_at_max; ++names) {
    errno = 0;
    const dirent* entry = ::readdir(listing.get());
    if (entry == nullptr && errno != 0) return failed_errno("cannot read " + path, errno);
    if (entry == nullptr) break;
    if (const auto job = parse_id_number(entry->d_name); job && *job <= most) last = std::max(last, *job);
  }
  return std::optional<std::uint64_t>(last);
}

}  // namespace tutti::rank
