#include "control/store/sqlite/reserve.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

namespace tutti::store {
namespace {

constexpr std::uint64_t step_bytes = std::uint64_t{1} << 20;  // so that not every commit asks for blocks
constexpr std::uint64_t part_of_free = 4;

}  // namespace

Result<> Reserve::open(const std::string& log_path) {
  log_ = files::FileDescriptor(::open(log_path.c_str(), O_RDWR | O_CLOEXEC));
  struct statvfs disk {};
  if (!log_.valid() || ::fstatvfs(log_.get(), &disk) != 0)
    return failed_errno("the write-ahead log cannot be opened", errno);
  const std::uint64_t free_bytes = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  reserve_bytes_ = std::min(reserve_bytes_wanted, free_bytes / part_of_free);
  if (!take(reserve_bytes_)) reserve_bytes_ = 0;
  return {};
}

bool Reserve::take(std::uint64_t end) {
  if (end <= taken_) return true;
  int done = 0;
  do {
    done = ::fallocate(log_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(end));
  } while (done != 0 && errno == EINTR);
  if (done == 0) taken_ = end;
  return done == 0;
}

std::uint64_t Reserve::log_bytes() const {
  struct stat log {};
  return ::fstat(log_.get(), &log) == 0 ? static_cast<std::uint64_t>(log.st_size) : 0;
}

void Reserve::log_was_cut() {
  taken_ = 0;
  (void)take(reserve_bytes_);
}

bool Reserve::is_at(const std::string& log_path) const {
  struct stat ours {};
  struct stat there {};
  return ::fstat(log_.get(), &ours) == 0 && ::stat(log_path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

bool Reserve::keep(std::uint64_t used, std::uint64_t bytes) {
  if (reserve_bytes_ == 0) return true;
  const std::uint64_t end = used + bytes + reserve_bytes_;
  return end <= taken_ || take(end + step_bytes) || take(end);
}

}  // namespace tutti::store
