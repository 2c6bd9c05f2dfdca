#include "net/sync/files.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace tutti::sync {

Result<std::size_t> read_some(int file, std::span<std::byte> buffer, const std::string& path) {
  while (true) {
    const ssize_t count = read(file, buffer.data(), buffer.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) return failed_errno("cannot read " + shown(path), errno);
  }
}

Result<> write_all(int file, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed_errno("cannot write " + shown(path), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

Result<std::vector<std::string>> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, CloseFolder> folder(opendir(path.c_str()));
  if (!folder) return failed_errno("cannot list " + shown(path), errno);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* next = readdir(folder.get());
    if (next == nullptr && errno != 0) return failed_errno("cannot list " + shown(path), errno);
    if (next == nullptr) return names;
    const std::string_view name = next->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

Result<> ensure_folder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  return failed_errno("cannot make the folder " + shown(path), errno);
}

std::string shown(std::string_view name) {
  constexpr std::size_t shown_bytes_max = 400;
  std::string text = "'";
  for (const char letter : name.substr(0, shown_bytes_max)) {
    const bool control = static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
    text += control ? '?' : letter;
  }
  return text + (name.size() > shown_bytes_max ? "…'" : "'");
}

}  // namespace tutti::sync
