#include "base/files/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/names.hpp"
#include "base/units.hpp"

namespace tutti::files {
namespace {

// The kernel's own files have a size of 0, and some tell a whole story only to one large read.
constexpr std::size_t first_read_bytes_min = 16384;

bool is_missing(int error_number) { return error_number == ENOENT || error_number == ENOTDIR; }

Error cannot(const char* what, const std::string& path, int error_number) {
  return failed_errno("cannot " + std::string(what) + " " + printable(path), error_number);
}

Error refused(const std::string& path, const char* why) {
  return invalid("cannot read " + printable(path) + ": " + why);
}

Error too_large(const std::string& path, std::size_t bytes_max) {
  return invalid("cannot read " + printable(path) + ": it is larger than " +
                 format_bytes(Bytes(static_cast<std::int64_t>(bytes_max))));
}

Error cannot_write(const std::string& name, int error_number) {
  auto error = failed_errno("cannot write " + name, error_number);
  const bool no_room = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return no_room ? std::move(error).remedy("make room there, or write to another disk") : error;
}

// A size is a first guess only: others write to files while they are read.
Result<std::string> read_to_end(int file, std::size_t guess, std::size_t bytes_max, const std::string& path) {
  const std::size_t buffer_bytes_max = bytes_max + 1;
  std::string content(std::min(std::max(guess + 1, first_read_bytes_min), buffer_bytes_max), '\0');
  std::size_t filled = 0;
  while (true) {
    const auto room = std::as_writable_bytes(std::span(content).subspan(filled));
    const auto count = read_some(file, room, printable(path));
    if (!count) return count.error();
    filled += *count;
    if (filled > bytes_max) return too_large(path, bytes_max);
    if (*count == 0) break;
    if (filled == content.size()) content.resize(std::min(2 * filled, buffer_bytes_max));
  }
  content.resize(filled);
  return content;
}

Result<> write_through(int file, std::string_view content, bool durable, const std::string& name) {
  if (auto written = write_all(file, as_bytes(content), name); !written) return written;
  return durable ? sync_file(file, name) : Result<>();
}

std::string folder_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

namespace {

// To open a pipe or a device may wait for ever, or do something: it is opened without waiting and then looked
// at.
Result<std::optional<OpenFile>> open_regular(const std::string& path, int flags) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags));
  if (!file.valid() && is_missing(errno)) return std::optional<OpenFile>();
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return cannot("read", path, errno);
  if (!S_ISREG(status.st_mode)) return refused(path, "it is no file");
  return std::optional(OpenFile{std::move(file), static_cast<std::uint64_t>(status.st_size)});
}

Result<std::optional<std::string>> read_regular(const std::string& path, std::size_t bytes_max, int flags) {
  const auto file = open_regular(path, flags);
  if (!file) return file.error();
  if (!*file) return std::optional<std::string>();
  const auto size = static_cast<std::size_t>((*file)->bytes);
  if (size > bytes_max) return too_large(path, bytes_max);
  auto content = read_to_end((*file)->file.get(), size, bytes_max, path);
  if (!content) return std::move(content).error();
  return std::optional(std::move(*content));
}

}  // namespace

Result<std::optional<OpenFile>> open_file(const std::string& path) { return open_regular(path, 0); }

Result<OpenFile> open_existing_file(const std::string& path) {
  auto file = open_file(path);
  if (!file) return std::move(file).error();
  if (!*file) return cannot("read", path, ENOENT);
  return std::move(**file);
}

Result<std::optional<std::string>> read_file(const std::string& path, std::size_t bytes_max) {
  return read_regular(path, bytes_max, 0);
}

Result<std::optional<std::string>> read_plain_file(const std::string& path, std::size_t bytes_max) {
  return read_regular(path, bytes_max, O_NOFOLLOW);
}

Result<std::string> read_existing_file(const std::string& path, std::size_t bytes_max) {
  auto content = read_file(path, bytes_max);
  if (!content) return std::move(content).error();
  if (!*content) return cannot("read", path, ENOENT);
  return std::move(**content);
}

Result<std::size_t> read_some(int file, std::span<std::byte> buffer, const std::string& name) {
  while (true) {
    const ssize_t count = read(file, buffer.data(), buffer.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) return failed_errno("cannot read " + name, errno);
  }
}

Result<> read_at(int file, std::uint64_t begin, std::span<std::byte> buffer, const std::string& name) {
  while (!buffer.empty()) {
    const ssize_t count = pread(file, buffer.data(), buffer.size(), static_cast<off_t>(begin));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed_errno("cannot read " + name, errno);
    if (count == 0) return failed("cannot read " + name + ": it ends early");
    buffer = buffer.subspan(static_cast<std::size_t>(count));
    begin += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<> write_all(int file, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot_write(name, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<> write_at(int file, std::uint64_t begin, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot_write(name, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    begin += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<> sync_file(int file, const std::string& name) {
  if (fsync(file) != 0) return cannot_write(name, errno);
  return {};
}

Result<> replace_file(const std::string& path, std::string_view content, const ReplaceOptions& options) {
  const std::string fresh = path + ".new";
  // What is there was left by a crash, or put there as a trap: a pipe would keep the writer waiting.
  if (unlink(fresh.c_str()) != 0 && errno != ENOENT) return cannot("write", fresh, errno);
  FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, options.mode));
  if (!file.valid()) return cannot("write", fresh, errno);
  auto written = write_through(file.get(), content, options.durable, printable(fresh));
  file.reset();
  if (written && rename(fresh.c_str(), path.c_str()) != 0) written = cannot("write", path, errno);
  if (!written) unlink(fresh.c_str());
  return written && options.durable ? sync_folder(folder_of(path)) : written;
}

Result<> write_new_file(const std::string& path, std::string_view content, mode_t mode) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.valid()) return cannot_write(printable(path), errno);
  return write_through(file.get(), content, true, printable(path));
}

Result<std::optional<std::vector<std::string>>> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, CloseFolder> folder(opendir(path.c_str()));
  if (!folder && errno == ENOENT) return std::optional<std::vector<std::string>>();
  if (!folder) return cannot("list", path, errno);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* next = readdir(folder.get());
    if (next == nullptr && errno != 0) return cannot("list", path, errno);
    if (next == nullptr) break;
    const std::string_view name = next->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::ranges::sort(names);
  return std::optional(std::move(names));
}

Result<> make_folder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  return cannot("make the folder", path, errno);
}

Result<> make_folders(const std::string& path) {
  std::error_code why;
  std::filesystem::create_directories(path, why);
  if (why) return failed("cannot make the folder " + printable(path) + ": " + why.message());
  return {};
}

Result<> sync_folder(const std::string& path) {
  const FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || fsync(folder.get()) != 0) return cannot("sync", path, errno);
  return {};
}

}  // namespace tutti::files
