#include "comm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tutti::comm {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, size_);
  if (descriptor_ >= 0) close(descriptor_);
}

Result<Segment> Segment::map(int descriptor, std::size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return failed_errno("shared memory cannot be mapped", errno);
  Segment segment;
  segment.data_ = static_cast<std::byte*>(data);
  segment.size_ = bytes;
  return segment;
}

Result<Segment> Segment::create(const std::string& name, std::size_t bytes) {
  const int descriptor = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return failed_errno("shared memory cannot be made", errno);
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0 || fcntl(descriptor, F_ADD_SEALS, seals) != 0) {
    const int error_number = errno;
    close(descriptor);
    return failed_errno("shared memory cannot be sized", error_number);
  }
  auto segment = map(descriptor, bytes);
  if (!segment) {
    close(descriptor);
    return segment;
  }
  segment->descriptor_ = descriptor;
  return segment;
}

Result<Segment> Segment::open(pid_t pid, int descriptor, std::size_t bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return failed_errno("the shared memory " + path + " cannot be opened", errno);
  struct stat status {};
  const bool fits = fstat(opened, &status) == 0 && status.st_size >= static_cast<off_t>(bytes);
  // Memory that could shrink would kill its readers with SIGBUS.
  const bool sealed = (fcntl(opened, F_GET_SEALS) & seals) == seals;
  if (!fits || !sealed) {
    close(opened);
    return failed(path + " is not the shared memory of a rank");
  }
  auto segment = map(opened, bytes);
  close(opened);
  return segment;
}

}  // namespace tutti::comm
