// A power cut for tests: what nobody has written to the disk by then is gone. It stands in for fsync() and
// syncfs() of the program, so exactly one source of it includes this.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace tutti::sync {

class Disk {
 public:
  static Disk& instance() {
    static Disk disk;
    return disk;
  }

  // Nothing is known to be on the disk, and writes go well.
  void begin() {
    const std::lock_guard lock(mutex_);
    error_number_ = 0;
    on_disk_.clear();
  }
  // From now on; 0: writes go well.
  void fail_with(int error_number) {
    const std::lock_guard lock(mutex_);
    error_number_ = error_number;
  }
  // Called once, when somebody waits for the disk the next time.
  void while_it_writes(std::function<void()> happen) {
    const std::lock_guard lock(mutex_);
    happen_ = std::move(happen);
  }
  std::size_t syncs() {
    const std::lock_guard lock(mutex_);
    return std::exchange(syncs_, 0);
  }

  int synced(int file) { return note({"/proc/self/fd/" + std::to_string(file)}); }
  int synced_all(int file) {
    std::set<std::string> paths;
    const auto folder = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file));
    paths.insert(folder.string());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      paths.insert(entry.path().string());
    return note(paths);
  }

  // A file that was not written is empty, and one whose folder was not has no name.
  void cut_power(const std::string& folder) {
    const std::lock_guard lock(mutex_);
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) files.insert(entry.path().string());
    }
    for (const auto& file : files) {
      if (!on_disk_.contains(identity(std::filesystem::path(file).parent_path().string()))) {
        std::filesystem::remove(file);
      } else if (!on_disk_.contains(identity(file))) {
        std::filesystem::resize_file(file, 0);
      }
    }
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;

  static Identity identity(const std::string& path) {
    struct stat status {};
    stat(path.c_str(), &status);
    return {status.st_dev, status.st_ino};
  }

  int note(const std::set<std::string>& paths) {
    std::function<void()> happen;
    {
      const std::lock_guard lock(mutex_);
      happen = std::exchange(happen_, nullptr);
    }
    if (happen) happen();
    const std::lock_guard lock(mutex_);
    ++syncs_;
    errno = error_number_;
    if (error_number_ != 0) return -1;
    for (const auto& path : paths) on_disk_.insert(identity(path));
    return 0;
  }

  std::mutex mutex_;
  int error_number_ = 0;
  std::size_t syncs_ = 0;
  std::function<void()> happen_;
  std::set<Identity> on_disk_;
};

}  // namespace tutti::sync

extern "C" int fsync(int file) { return tutti::sync::Disk::instance().synced(file); }
extern "C" int syncfs(int file) noexcept { return tutti::sync::Disk::instance().synced_all(file); }
