#include "learn/dataset/files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"

namespace tutti::dataset {
namespace {

Error cannot_write(const std::string& path, int error_number) {
  auto error = failed_errno("cannot write " + path, error_number);
  const bool no_room = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return no_room ? std::move(error).remedy("make room there, or write to another disk") : error;
}

Error wrong_size(const std::string& path, std::uint64_t is, std::uint64_t should) {
  return failed(path + " is " + (is < should ? "truncated" : "too long") + ": it has " + std::to_string(is) +
                " bytes of " + std::to_string(should));
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  const files::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return failed_errno("cannot read " + path, errno);
  std::string content;
  while (true) {
    char buffer[65536];
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed_errno("cannot read " + path, errno);
    if (count == 0) return content;
    content.append(buffer, static_cast<std::size_t>(count));
    if (content.size() > bytes_max) return invalid("cannot read " + path + ": it is too large");
  }
}

Result<> write_at(int file, std::uint64_t begin, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot_write(path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    begin += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<> write_file(const std::string& path, std::string_view content) {
  const files::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) return cannot_write(path, errno);
  if (auto written = write_at(file.get(), 0, as_bytes(content), path); !written) return written;
  return flush_to_disk(file.get(), path);
}

Result<> flush_to_disk(int file, const std::string& path) {
  if (::fsync(file) != 0) return cannot_write(path, errno);
  return {};
}

Result<Mapping> Mapping::open(const std::string& path, std::uint64_t bytes) {
  const files::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return failed_errno("cannot read " + path, errno);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size != bytes) return wrong_size(path, size, bytes);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) return failed_errno("cannot map " + path, errno);
  return Mapping(std::span(static_cast<const std::byte*>(memory), bytes));
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tutti::dataset
