#include "learn/checkpoint/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/files/files.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::size_t file_name_max = 255;  // of Linux
constexpr auto lock_patience = std::chrono::seconds(60);
constexpr auto lock_retry_every = std::chrono::milliseconds(10);

}  // namespace

Result<> replace_durably(const std::string& path, std::string_view content) {
  return files::replace_file(path, content, {.mode = 0644, .durable = true});
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
  auto names = files::list_folder(folder);
  if (!names) return std::move(names).error();
  return std::move(*names).value_or(std::vector<std::string>());
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
