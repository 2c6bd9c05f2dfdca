#include "net/sync/chunks.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "net/sync/digest.hpp"

namespace tutti::sync {

std::size_t chunk_count(Bytes file) {
  TUTTI_CHECK(file >= Bytes(0));
  const std::int64_t whole = file.count() / chunk_bytes.count();
  const bool rest = file.count() % chunk_bytes.count() != 0;
  return static_cast<std::size_t>(std::max<std::int64_t>(whole + (rest ? 1 : 0), 1));
}

Bytes chunk_size(Bytes file, std::size_t index) {
  TUTTI_CHECK(index < chunk_count(file));
  const Bytes before(chunk_bytes.count() * static_cast<std::int64_t>(index));
  return std::min(chunk_bytes, file - before);
}

Result<std::string> read_chunk(const std::string& path, const ChunkPlace& place) {
  const files::FileDescriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return failed_errno("cannot read " + files::shown(path), errno);
  const off_t begin = chunk_bytes.count() * static_cast<off_t>(place.index);
  if (lseek(file.get(), begin, SEEK_SET) != begin)
    return failed_errno("cannot read " + files::shown(path), errno);
  std::string content(static_cast<std::size_t>(chunk_size(place.bytes, place.index).count()), '\0');
  std::span<char> left(content);
  while (!left.empty()) {
    const auto count = files::read_some(file.get(), std::as_writable_bytes(left), files::shown(path));
    if (!count) return count.error();
    if (*count == 0) break;
    left = left.subspan(*count);
  }
  if (!left.empty() || hash_bytes(as_bytes(content)) != place.hash) {
    return failed(files::shown(path) + " changed while it was sent")
        .remedy("try again when nothing writes to the file, or list it in .tuttiignore");
  }
  return content;
}

}  // namespace tutti::sync
