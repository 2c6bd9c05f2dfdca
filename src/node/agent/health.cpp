#include "node/agent/health.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::agent {
namespace {

std::string describe_errno(const std::string& folder, const char* what) {
  return "its folder " + folder + failed_errno(what, errno).message();
}

// Writes a page and removes it again.
std::string try_to_write(const std::string& folder) {
  const std::string path = folder + "/health";
  const std::array<char, 4096> page{};
  const files::FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file.valid()) return describe_errno(folder, " cannot be written");
  const bool written = ::write(file.get(), page.data(), page.size()) == static_cast<ssize_t>(page.size());
  std::string why = written ? "" : describe_errno(folder, " cannot be written");
  ::unlink(path.c_str());
  return why;
}

}  // namespace

std::string look_at_folder(const std::string& folder, bool was_ill) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return describe_errno(folder, " cannot be looked at");
  const std::uint64_t needed = was_ill ? 2 : 1;
  const auto bytes_min = static_cast<std::uint64_t>(free_bytes_min.count()) * needed;
  if (disk.f_bavail * disk.f_frsize < bytes_min)
    return "its folder " + folder + " has less than " + format_bytes(free_bytes_min) +
           " of free space; it takes work again with " + format_bytes(free_bytes_min * 2);
  // Some file systems do not count files.
  if (disk.f_files > 0 && disk.f_favail < free_files_min * needed)
    return "its folder " + folder + " has room for less than " + std::to_string(free_files_min) +
           " files; it takes work again with room for " + std::to_string(free_files_min * 2);
  return try_to_write(folder);
}

Health::Health(std::string folder) : folder_(std::move(folder)), illness_(look_at_folder(folder_, false)) {
  start();
}

Health::~Health() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Health::start() {
  try {
    seen_at_ = Clock::now();
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // The next who asks tries again.
  }
}

std::string Health::illness() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) start();
  if (!thread_.joinable()) return "it has no thread to look at its folder with";
  if (Clock::now() - seen_at_ > health_every + health_time_max)
    return "its folder " + folder_ + " does not answer";
  return illness_;
}

void Health::run() {
  std::unique_lock lock(mutex_);
  while (!woken_.wait_for(lock, health_every, [this] { return stopping_; })) {
    const bool was_ill = !illness_.empty();
    lock.unlock();
    std::string illness = look_at_folder(folder_, was_ill);
    lock.lock();
    illness_ = std::move(illness);
    seen_at_ = Clock::now();
  }
}

}  // namespace tutti::agent
