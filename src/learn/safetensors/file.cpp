#include "learn/safetensors/file.hpp"

#include <algorithm>
#include <array>
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
  auto opened = files::open_existing_file(path);
  if (!opened) return std::move(opened).error();
  auto header = read_header(opened->file.get(), opened->bytes, path);
  if (!header) return std::move(header).error().within(path);
  return File(path, std::move(opened->file), std::move(*header));
}

Result<> File::read(std::uint64_t begin, std::span<std::byte> bytes) const {
  return files::read_at(file_.get(), begin, bytes, path_);
}

}  // namespace tutti::safetensors
