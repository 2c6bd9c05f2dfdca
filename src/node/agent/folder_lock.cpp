#include "node/agent/folder_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

namespace tutti::agent {
namespace {

constexpr std::size_t pid_bytes_max = 16;

}  // namespace

// What cannot be noted, on a disk that is full, keeps nobody from his work.
FolderLock::FolderLock(files::FileDescriptor file) : file_(std::move(file)) {
  char before[pid_bytes_max];
  const ssize_t count = ::pread(file_.get(), before, sizeof before, 0);
  if (count > 0) std::from_chars(before, before + count, lost_by_);
  const std::string own = std::to_string(::getpid()) + "\n";
  static_cast<void>(::ftruncate(file_.get(), 0) == 0 &&
                    ::pwrite(file_.get(), own.data(), own.size(), 0) == static_cast<ssize_t>(own.size()));
}

FolderLock::~FolderLock() {
  if (file_.valid()) static_cast<void>(::ftruncate(file_.get(), 0) == 0);
}

Result<FolderLock> FolderLock::take(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return failed(failure.message()).within("cannot make " + folder);
  const std::string path = folder + "/lock";
  files::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return failed_errno("cannot be opened", errno).within(path);
  // Not flock(): a child shares that lock until it calls exec. The shim that a killed agent was just starting
  // would keep the folder from the next agent.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_SETLK, &whole) == 0) return FolderLock(std::move(file));
  if (errno != EAGAIN && errno != EACCES) return failed_errno("cannot be locked", errno).within(path);
  const auto holder = holder_of(folder);
  return failed("another agent uses this folder")
      .within(folder)
      .remedy((holder && *holder > 0 ? "it is process " + std::to_string(*holder) + "; " : std::string()) +
              "give each agent a --data folder of its own");
}

std::optional<pid_t> FolderLock::holder_of(const std::string& folder) {
  // Somebody may have laid a link or a pipe there.
  const files::FileDescriptor file(
      ::open((folder + "/lock").c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (!file.valid() || ::fcntl(file.get(), F_GETLK, &whole) != 0 || whole.l_type == F_UNLCK)
    return std::nullopt;
  return whole.l_pid > 0 ? whole.l_pid : 0;
}

}  // namespace tutti::agent
