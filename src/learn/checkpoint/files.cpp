#include "learn/checkpoint/files.hpp"

#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/bytes.hpp"
#include "learn/safetensors/file.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::size_t file_name_max = 255;  // of Linux
constexpr auto lock_patience = std::chrono::seconds(60);
constexpr auto lock_retry_every = std::chrono::milliseconds(10);

Error cannot(const std::string& what, const std::string& path, const std::error_code& why) {
  return failed("cannot " + what + " " + path + ": " + why.message());
}

Result<> write_all(int file, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t count = write(file, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed_errno("cannot write " + path, errno);
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

std::string folder_of(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

}  // namespace

Result<std::optional<std::string>> read_file(const std::string& path, std::size_t bytes_max) {
  const files::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && (errno == ENOENT || errno == ENOTDIR)) return std::optional<std::string>();
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return failed_errno("cannot read " + path, errno);
  if (!S_ISREG(status.st_mode)) return failed("cannot read " + path + ": it is no file");
  if (static_cast<std::size_t>(status.st_size) > bytes_max)
    return failed("cannot read " + path + ": it is too large");
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  const auto read = safetensors::read_at(file.get(), 0, std::as_writable_bytes(std::span(content)), path);
  if (!read) return read.error();
  return std::optional(std::move(content));
}

Result<> replace_file(const std::string& path, std::string_view content) {
  const std::string fresh = path + ".new";
  files::FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return failed_errno("cannot write " + fresh, errno);
  auto written = write_all(file.get(), content, fresh);
  if (written && fsync(file.get()) != 0) written = failed_errno("cannot write " + fresh, errno);
  if (written) written = rename_file(fresh, path);
  if (written) return sync_folder(folder_of(path));
  unlink(fresh.c_str());
  return written;
}

Result<> sync_folder(const std::string& path) {
  const files::FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || fsync(folder.get()) != 0) return failed_errno("cannot sync " + path, errno);
  return {};
}

Result<> make_folders(const std::string& path) {
  std::error_code why;
  std::filesystem::create_directories(path, why);
  if (why) return cannot("make the folder", path, why);
  return {};
}

// The C library's way: libtorch brings a std::filesystem of its own along in places, and removing with a
// mixture of two ends the program.
Result<> remove_folder(const std::string& path) {
  constexpr int descriptors = 16;
  const auto remove_one = [](const char* one, const struct stat*, int, FTW*) { return ::remove(one); };
  if (nftw(path.c_str(), remove_one, descriptors, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return {};
  return failed_errno("cannot remove " + path, errno);
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

Result<> rename_file(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) return failed_errno("cannot rename " + from, errno);
  return {};
}

Result<std::vector<std::string>> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code why;
  std::filesystem::directory_iterator entry(folder, why);
  for (; !why && entry != std::filesystem::directory_iterator(); entry.increment(why)) {
    names.push_back(entry->path().filename().string());
  }
  if (why && why != std::errc::no_such_file_or_directory) return cannot("list", folder, why);
  std::ranges::sort(names);
  return names;
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= file_name_max && name.front() != '.' &&
         std::ranges::all_of(name, [](char letter) {
           return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                  (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
         });
}

std::string padded(std::int64_t number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

Result<Lock> Lock::acquire(const std::string& path) {
  files::FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) return failed_errno("cannot open " + path, errno);
  const auto give_up_at = std::chrono::steady_clock::now() + lock_patience;
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed_errno("cannot lock " + path, errno);
    if (std::chrono::steady_clock::now() > give_up_at) {
      return failed("cannot lock " + path + ": another process has held it for a minute");
    }
    std::this_thread::sleep_for(lock_retry_every);
  }
  return Lock(std::move(file));
}

}  // namespace tutti::checkpoint
