#include "base/files/descriptor.hpp"

#include <unistd.h>

namespace tutti::files {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  number_ = other.release();
  return *this;
}

void FileDescriptor::reset() {
  if (number_ >= 0) close(std::exchange(number_, -1));
}

}  // namespace tutti::files
