#include "control/store/sqlite/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "base/id.hpp"
#include "base/text.hpp"

namespace tutti::store {
namespace {

constexpr int lock_tries_max = 50;
constexpr auto lock_tries_apart = std::chrono::milliseconds(20);

// 0 if there is none: a holder that has only just locked has not written its pid yet.
pid_t written_pid(int descriptor) {
  char buffer[32];
  const ssize_t length = pread(descriptor, buffer, sizeof buffer, 0);
  const std::string_view text = trim({buffer, length > 0 ? static_cast<std::size_t>(length) : 0});
  const auto pid = parse_id_number(text);
  return pid && *pid <= std::numeric_limits<pid_t>::max() ? static_cast<pid_t>(*pid) : 0;
}

Error in_use(int descriptor) {
  const pid_t pid = written_pid(descriptor);
  const std::string who =
      pid > 0 ? "another controller (pid " + std::to_string(pid) + ")" : "another controller";
  return failed(who + " uses this store").remedy("stop it first, or give each controller a store of its own");
}

Result<> write_pid(int descriptor) {
  const std::string text = std::to_string(getpid()) + "\n";
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, text.data(), text.size(), 0) < 0)
    return failed_errno("the lock file cannot be written", errno);
  return {};
}

// Whoever was killed lets go only when the system has taken its memory back, which may be after its heir has
// started.
bool lock_soon(int descriptor) {
  for (int tries = 0; flock(descriptor, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK || tries == lock_tries_max) return false;
    std::this_thread::sleep_for(lock_tries_apart);
  }
  return true;
}

}  // namespace

Result<FileLock> FileLock::take(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return failed_errno("the lock file cannot be opened", errno).within(path);
  FileLock lock(descriptor);
  if (!lock_soon(descriptor)) {
    if (errno == EWOULDBLOCK) return in_use(descriptor);
    return failed_errno("cannot be locked", errno).within(path);
  }
  if (auto written = write_pid(descriptor); !written) return std::move(written).error().within(path);
  return lock;
}

Result<FileLock> FileLock::take_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return failed_errno("the store cannot be opened", errno);
  FileLock lock(descriptor);
  if (lock_soon(descriptor)) return lock;
  if (errno != EWOULDBLOCK) return failed_errno("the store cannot be locked", errno);
  return failed("another controller uses this store, although its lock file is gone")
      .remedy("stop it first, or give each controller a store of its own");
}

// Shared, and let go at once: whoever wants to have it meanwhile tries again.
std::optional<pid_t> FileLock::holder_of(const std::string& path, const std::string& lock_file) {
  const FileLock asked(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (asked.descriptor_ < 0 || flock(asked.descriptor_, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK)
    return std::nullopt;
  const FileLock told(open(lock_file.c_str(), O_RDONLY | O_CLOEXEC));
  return told.descriptor_ < 0 ? 0 : written_pid(told.descriptor_);
}

bool FileLock::is_at(const std::string& path) const {
  struct stat ours {};
  struct stat there {};
  return fstat(descriptor_, &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace tutti::store
