#include "node/rank/checkpoint_root.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "base/files/tree.hpp"

namespace tutti::rank {
namespace {

namespace fs = std::filesystem;

constexpr mode_t passage_mode = 0711;  // users pass to what is theirs, and see and make nothing else
constexpr mode_t shared_mode = 01777;  // where they make theirs themselves
constexpr mode_t marks_mode = 0700;
constexpr mode_t written_by_others = S_IWGRP | S_IWOTH;
constexpr uid_t unknown_user = static_cast<uid_t>(-1);
constexpr int path_flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

const char* name_of(CheckpointMarks marks) {
  switch (marks) {
    case CheckpointMarks::begun:
      return ".begun";
    case CheckpointMarks::ended:
      return ".ended";
    case CheckpointMarks::removed:
      return ".removed";  // on their way out
  }
  return "";
}

// Not by its name, where another folder may be by now; what was opened so has no fchmod().
int set_mode(int folder, mode_t mode) {
  return ::chmod(("/proc/self/fd/" + std::to_string(folder)).c_str(), mode) == 0 ? 0 : errno;
}

struct stat status_of(int folder) {
  struct stat status {};
  if (::fstat(folder, &status) != 0) status.st_uid = unknown_user;
  return status;
}

Error not_entered(const std::string& path, int why) {
  if (why == ELOOP || why == ENOTDIR)
    return invalid(files::printable(path) + ", for the checkpoints of this cluster, is a link or no folder");
  if (why == EXDEV)
    return invalid(files::printable(path) + ", for the checkpoints of this cluster, is another disk than " +
                   files::printable(fs::path(path).parent_path().string()));
  return failed_errno("cannot enter " + files::printable(path), why);
}

Error foreign(const std::string& path, uid_t owner) {
  return invalid(files::printable(path) + ", for the checkpoints of this cluster, is somebody else's (uid " +
                 std::to_string(owner) + ") and not the agent's: remove it, or make it root's (chown)");
}

// Who this process is on that disk, where root may be nobody: of the file that was made it is the owner. By
// its descriptor, because its name may be anybody's the next moment.
uid_t made_by_us(int folder) {
  const std::string name = ".whoami-" + std::to_string(std::random_device()());
  const files::FileDescriptor file(
      ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool may_not = errno == EACCES || errno == EPERM;
  if (!file.valid()) return may_not ? unknown_user : ::geteuid();
  const uid_t owner = status_of(file.get()).st_uid;
  ::unlinkat(folder, name.c_str(), 0);
  return owner;
}

std::string above(const std::string& path) { return fs::path(path).parent_path().string(); }

files::FileDescriptor open_base(const std::string& path) {
  return files::FileDescriptor(::open(above(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace

std::string CheckpointRoot::held(const std::string& name) const {
  return "/proc/self/fd/" + std::to_string(folder_.get()) + "/" + name;
}

std::string CheckpointRoot::named(CheckpointMarks marks) const { return named(name_of(marks)); }

bool CheckpointRoot::is_missing(const std::string& name) const {
  struct stat status {};
  return ::fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

Result<std::optional<CheckpointRoot>> CheckpointRoot::open(const std::string& path) {
  const files::FileDescriptor base = open_base(path);
  if (!base.valid() && (errno == ENOENT || errno == ENOTDIR)) return std::optional<CheckpointRoot>();
  if (!base.valid()) return not_entered(above(path), errno);
  files::FileDescriptor folder = files::open_below(base, fs::path(path).filename(), path_flags);
  if (!folder.valid() && errno == ENOENT) return std::optional<CheckpointRoot>();
  if (!folder.valid()) return not_entered(path, errno);
  auto root = judged(CheckpointRoot(path, std::move(folder)), base, false);
  if (!root) return std::move(root).error();
  return std::optional<CheckpointRoot>(*std::move(root));
}

Result<CheckpointRoot> CheckpointRoot::make(const std::string& path) {
  if (auto made = files::make_folders(above(path)); !made) return std::move(made).error();
  const files::FileDescriptor base = open_base(path);
  if (!base.valid()) return not_entered(above(path), errno);
  const std::string name = fs::path(path).filename();
  const bool is_new = ::mkdirat(base.get(), name.c_str(), ::geteuid() == 0 ? passage_mode : 0777) == 0;
  if (!is_new && errno != EEXIST) return failed_errno("cannot make " + files::printable(path), errno);
  files::FileDescriptor folder = files::open_below(base, name, path_flags);
  if (!folder.valid()) return not_entered(path, errno);
  return judged(CheckpointRoot(path, std::move(folder)), base, is_new);
}

// Who is not root runs ranks as himself, and has nothing to lose to them. Root's own is closed, unless root
// is nobody there; then an operator has opened it to users.
Result<CheckpointRoot> CheckpointRoot::judged(CheckpointRoot root, const files::FileDescriptor& base,
                                              bool is_new) {
  if (::geteuid() != 0) return root;
  const struct stat status = status_of(root.folder());
  if (status.st_uid == 0) {
    const bool is_open = is_new || (status.st_mode & written_by_others) != 0;
    root.users_make_theirs_ = is_open && set_mode(root.folder(), passage_mode) != 0;
    return root;
  }
  const bool is_self = status.st_uid == root.self();
  if (!is_self && status.st_uid != status_of(base.get()).st_uid) return foreign(root.path_, status.st_uid);
  root.users_make_theirs_ = root.self() != 0;
  const bool has_let_in = (status.st_mode & 07777) == shared_mode;
  if (is_self && !has_let_in)
    if (auto done = root.let_users_in(); !done) return std::move(done).error();
  return root;
}

// The marks first: once users may write here, they could make those folders.
Result<> CheckpointRoot::let_users_in() {
  for (const auto marks : {CheckpointMarks::begun, CheckpointMarks::ended, CheckpointMarks::removed})
    if (auto made = make_marks(marks); !made) return std::move(made).error();
  if (const int why = set_mode(folder(), shared_mode); why != 0)
    return failed_errno("cannot let users into " + files::printable(path_), why);
  return {};
}

uid_t CheckpointRoot::self() {
  if (!self_) self_ = made_by_us(folder());
  return *self_;
}

bool CheckpointRoot::is_own(const struct stat& status) {
  const uid_t user = ::geteuid();
  return user != 0 || status.st_uid == user || (users_make_theirs_ && status.st_uid == self());
}

Result<std::optional<files::FileDescriptor>> CheckpointRoot::open_marks(CheckpointMarks marks) {
  files::FileDescriptor folder = files::open_below(folder_, name_of(marks), files::folder_flags);
  if (!folder.valid() && errno == ENOENT) return std::optional<files::FileDescriptor>();
  if (!folder.valid()) return failed_errno("cannot enter " + files::printable(named(marks)), errno);
  const struct stat status = status_of(folder.get());
  const bool is_closed = (status.st_mode & written_by_others) == 0 || ::geteuid() != 0;
  if (!is_own(status) || (!is_closed && ::fchmod(folder.get(), marks_mode) != 0))
    return failed(files::printable(named(marks)) + " is somebody else's (uid " +
                  std::to_string(status.st_uid) +
                  ") and not the agent's, and nothing in it is believed: remove it");
  return std::optional<files::FileDescriptor>(std::move(folder));
}

Result<files::FileDescriptor> CheckpointRoot::make_marks(CheckpointMarks marks) {
  const mode_t mode = ::geteuid() == 0 ? marks_mode : 0777;
  if (::mkdirat(folder(), name_of(marks), mode) != 0 && errno != EEXIST)
    return failed_errno("cannot make " + files::printable(named(marks)), errno);
  auto opened = open_marks(marks);
  if (!opened) return std::move(opened).error();
  if (!*opened) return failed(files::printable(named(marks)) + " has gone");
  return **std::move(opened);
}

// What is not the agent's own is not believed, and so missing.
bool CheckpointRoot::lacks_mark(CheckpointMarks marks, const std::string& job) {
  struct stat above {};
  const bool is_there = ::fstatat(folder(), name_of(marks), &above, AT_SYMLINK_NOFOLLOW) == 0;
  if (!is_there) return errno == ENOENT;
  if (!S_ISDIR(above.st_mode) || !is_own(above)) return true;
  const auto opened = open_marks(marks);
  if (!opened || !*opened) return false;
  struct stat status {};
  if (::fstatat((*opened)->get(), job.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  return !is_own(status);
}

std::string checkpoints_in_other_hands(const std::string& base) {
  if (::geteuid() != 0) return "";
  struct stat own {};
  if (::stat(base.c_str(), &own) != 0) return "";
  for (fs::path at = base;; at = at.parent_path()) {
    struct stat status {};
    const bool is_there = ::stat(at.c_str(), &status) == 0;
    const bool is_owners = status.st_uid == 0 || status.st_uid == own.st_uid;
    const bool is_anybodys = (status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0;
    if (is_there && (!is_owners || is_anybodys))
      return "others than root may change what is in " + files::printable(at.string()) +
             ", and so put folders of theirs in place of those for checkpoints (--checkpoints " +
             files::printable(base) + ")";
    if (at == at.root_path() || at.empty()) return "";
  }
}

}  // namespace tutti::rank
