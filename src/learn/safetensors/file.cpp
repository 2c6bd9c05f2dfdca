#include "learn/safetensors/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "base/files/files.hpp"

namespace tutti::safetensors {
namespace {

Result<Header> read_header(int file, std::uint64_t file_bytes, const std::string& path) {
  std::array<std::byte, length_bytes> length{};
  if (file_bytes < length.size()) return invalid("the file is too short for a header");
  if (auto read = files::read_at(file, 0, length, path); !read) return std::move(read).error();
  const auto bytes = header_bytes(length, file_bytes);
  if (!bytes) return bytes.error();
  std::vector<std::byte> content(*bytes);
  if (auto read = files::read_at(file, 0, content, path); !read) return std::move(read).error();
  return parse_header(content, file_bytes);
}

}  // namespace

Result<File> File::open(const std::string& path) {
  files::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return failed_errno("cannot read " + path, errno);
  if (!S_ISREG(status.st_mode)) return invalid("cannot read " + path + ": it is no file");
  auto header = read_header(file.get(), static_cast<std::uint64_t>(status.st_size), path);
  if (!header) return std::move(header).error().within(path);
  return File(path, std::move(file), std::move(*header));
}

Result<> File::read(std::uint64_t begin, std::span<std::byte> bytes) const {
  return files::read_at(file_.get(), begin, bytes, path_);
}

}  // namespace tutti::safetensors
