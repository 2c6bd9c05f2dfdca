// Measures a tree that may have been made to hurt: it goes down and up by descriptors, so that neither the
// stack of calls nor the number of open files grows with the depth of the tree.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/tree.hpp"

namespace tutti::files {
namespace {

constexpr std::size_t entries_max = 4'096;
constexpr std::uint64_t block_bytes = 512;  // as stat() counts them

class TreeMeasure {
 public:
  explicit TreeMeasure(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  std::uint64_t run(const std::string& path) {
    current_ = FileDescriptor(open(path.c_str(), folder_flags));
    if (!current_.valid()) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : bytes_max_;
    struct stat status {};
    if (fstat(current_.get(), &status) != 0) return bytes_max_;
    disk_ = status.st_dev;
    mount_ = mount_of(current_);
    add(status);
    way_.push_back({status.st_ino, {}});
    bool goes_on = add_current();
    while (goes_on && bytes_ < bytes_max_) {
      if (!way_.back().folders.empty()) {
        goes_on = go_down();
      } else if (way_.size() > 1) {
        goes_on = go_up();
      } else {
        return bytes_;
      }
    }
    return bytes_max_;
  }

 private:
  struct Level {
    ino_t inode = 0;
    std::vector<std::string> folders;  // in it, still to be measured
  };

  void add(const struct stat& status) {
    bytes_ += static_cast<std::uint64_t>(status.st_blocks) * block_bytes;
  }

  // False where it cannot be known, or is too much to look at.
  bool add_current() {
    const Listing listing = list_open_folder(current_);
    if (!listing) return false;
    for (;;) {
      errno = 0;
      const dirent* entry = readdir(listing.get());
      if (entry == nullptr) return errno == 0;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (++entries_ > entries_max) return false;
      struct stat status {};
      if (fstatat(current_.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;
        return false;
      }
      if (status.st_dev != disk_) continue;
      add(status);
      if (S_ISDIR(status.st_mode)) way_.back().folders.emplace_back(name);
    }
  }

  bool go_down() {
    const std::string name = std::move(way_.back().folders.back());
    way_.back().folders.pop_back();
    FileDescriptor below(openat(current_.get(), name.c_str(), folder_flags));
    if (!below.valid()) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    struct stat status {};
    if (fstat(below.get(), &status) != 0) return false;
    if (status.st_dev != disk_ || mount_of(below) != mount_) return true;
    way_.push_back({status.st_ino, {}});
    current_ = std::move(below);
    return add_current();
  }

  bool go_up() {
    FileDescriptor above(openat(current_.get(), "..", folder_flags));
    struct stat status {};
    if (!above.valid() || fstat(above.get(), &status) != 0) return false;
    way_.pop_back();
    current_ = std::move(above);
    return status.st_dev == disk_ && status.st_ino == way_.back().inode;
  }

  const std::uint64_t bytes_max_;
  FileDescriptor current_;
  dev_t disk_ = 0;
  std::uint64_t mount_ = 0;
  std::vector<Level> way_;  // from the root of the tree to the current folder
  std::uint64_t bytes_ = 0;
  std::size_t entries_ = 0;
};

}  // namespace

std::uint64_t folder_bytes(const std::string& path, std::uint64_t bytes_max) {
  return TreeMeasure(bytes_max).run(path);
}

}  // namespace tutti::files
