#include "node/rank/files.hpp"

#include "base/files/descriptor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace tutti::rank {

Result<std::optional<std::string>> read_file(const std::string& path, std::size_t bytes_max) {
  const files::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::optional<std::string>();
  if (!file.valid()) return failed_errno("cannot read " + path, errno);
  std::string content;
  while (true) {
    char buffer[16384];
    const ssize_t count = read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed_errno("cannot read " + path, errno);
    if (count == 0) return std::optional(std::move(content));
    content.append(buffer, static_cast<std::size_t>(count));
    if (content.size() > bytes_max) return failed("cannot read " + path + ": it is too large");
  }
}

namespace {

Result<> write_all(int file, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t count = write(file, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed_errno("cannot write " + path, errno);
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace

Result<> replace_file(const std::string& path, std::string_view content) {
  const std::string fresh = path + ".new";
  files::FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return failed_errno("cannot write " + fresh, errno);
  if (auto written = write_all(file.get(), content, fresh); !written) {
    unlink(fresh.c_str());
    return written;
  }
  file.reset();
  if (rename(fresh.c_str(), path.c_str()) != 0) return failed_errno("cannot write " + path, errno);
  return {};
}

bool write_existing(const std::string& path, std::string_view content) {
  const files::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  return write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size());
}

}  // namespace tutti::rank
