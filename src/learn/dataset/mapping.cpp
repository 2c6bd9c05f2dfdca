#include "learn/dataset/mapping.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "base/files/files.hpp"

namespace tutti::dataset {
namespace {

Error wrong_size(const std::string& path, std::uint64_t is, std::uint64_t should) {
  return failed(path + " is " + (is < should ? "truncated" : "too long") + ": it has " + std::to_string(is) +
                " bytes of " + std::to_string(should));
}

}  // namespace

Result<Mapping> Mapping::open(const std::string& path, std::uint64_t bytes) {
  const auto opened = files::open_existing_file(path);
  if (!opened) return opened.error();
  if (opened->bytes != bytes) return wrong_size(path, opened->bytes, bytes);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, opened->file.get(), 0);
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
