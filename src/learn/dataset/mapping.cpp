#include "learn/dataset/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/files/descriptor.hpp"

namespace tutti::dataset {
namespace {

Error wrong_size(const std::string& path, std::uint64_t is, std::uint64_t should) {
  return failed(path + " is " + (is < should ? "truncated" : "too long") + ": it has " + std::to_string(is) +
                " bytes of " + std::to_string(should));
}

}  // namespace

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
