// Removes a tree that may have been made to hurt: thousands of folders in each other, millions of files in
// one, links to elsewhere. One name at a time, relative to an open folder; memory does not grow with what a
// folder holds, the stack of calls not with its depth. System calls alone: libtorch brings a std::filesystem
// of its own along in places, and removing with a mixture of two ends the program.
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
#include "base/files/names.hpp"
#include "base/files/rights.hpp"
#include "base/files/tree.hpp"

namespace tutti::files {
namespace {

// Deeper ones are moved up to the root of the tree first, so that the way back stays short.
constexpr std::size_t levels_max = 1024;
constexpr std::size_t noted_max = 65'536;
constexpr std::size_t refilled_max = 1000;

class TreeRemoval {
 public:
  explicit TreeRemoval(const std::string& path) : path_(path) {}

  Result<> run() {
    current_ = FileDescriptor(open(path_.c_str(), folder_flags));
    if (!current_.valid() && errno == EACCES) {
      restore_rights(path_);
      current_ = FileDescriptor(open(path_.c_str(), folder_flags));
    }
    if (!current_.valid()) return remove_no_folder();
    struct stat status {};
    if (fstat(current_.get(), &status) != 0) return cannot_remove(errno);
    disk_ = status.st_dev;
    mount_ = mount_of(current_);
    root_ = FileDescriptor(dup(current_.get()));
    way_.push_back({"", status.st_ino, {}});
    for (;;) {
      if (way_.back().folders.empty()) {
        if (auto emptied = empty_current(); !emptied) return emptied;
      }
      const bool holds_folders = !way_.back().folders.empty();
      if (!holds_folders && way_.size() == 1) break;
      if (auto moved = holds_folders ? go_down() : go_up(); !moved) return moved;
    }
    current_.reset();
    if (rmdir(path_.c_str()) != 0 && errno != ENOENT) return cannot_remove(errno);
    return {};
  }

 private:
  struct Level {
    std::string name;  // in the folder above
    ino_t inode = 0;
    std::vector<std::string> folders;  // in it, still to be removed
  };

  Error cannot_remove(int error_number) const {
    if (error_number == EXDEV)
      return failed("cannot remove " + printable(path_) + ": something else is mounted in it");
    return failed_errno("cannot remove " + printable(path_), error_number);
  }

  // A file or a link is removed as itself.
  Result<> remove_no_folder() const {
    const int why = errno;
    if (why == ENOENT || ((why == ENOTDIR || why == ELOOP) && unlink(path_.c_str()) == 0)) return {};
    return cannot_remove(why);
  }

  // Removes what the current folder holds, but for the folders in it, which are noted: as many as may be at
  // once.
  Result<> empty_current() {
    Listing listing = list_open_folder(current_);
    if (!listing && errno == EACCES && fchmod(current_.get(), S_IRWXU) == 0)
      listing = list_open_folder(current_);
    if (!listing) return cannot_remove(errno);
    auto& folders = way_.back().folders;
    while (folders.empty() || noted_ < noted_max) {
      errno = 0;
      const dirent* entry = readdir(listing.get());
      if (entry == nullptr && errno != 0) return cannot_remove(errno);
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (entry->d_type != DT_DIR && remove_name(entry->d_name)) continue;
      if (entry->d_type != DT_DIR && errno != EISDIR && errno != EPERM) return cannot_remove(errno);
      folders.emplace_back(name);
      ++noted_;
    }
    return {};
  }

  // Its owner may have taken the right to write from a folder of its own.
  bool remove_name(const char* name, int flags = 0) const {
    if (unlinkat(current_.get(), name, flags) == 0 || errno == ENOENT) return true;
    if (errno != EACCES || fchmod(current_.get(), S_IRWXU) != 0) return false;
    return unlinkat(current_.get(), name, flags) == 0;
  }

  bool move_up(const std::string& name, const std::string& aside) const {
    return renameat(current_.get(), name.c_str(), root_.get(), aside.c_str()) == 0;
  }

  Result<> go_down() {
    const std::string name = std::move(way_.back().folders.back());
    way_.back().folders.pop_back();
    --noted_;
    if (remove_name(name.c_str(), AT_REMOVEDIR)) return {};  // it was empty
    if (way_.size() > levels_max) {
      const std::string aside = ".tutti-deep-" + std::to_string(++moved_);
      if (move_up(name, aside)) return {};
      if (errno != EACCES) return cannot_remove(errno);
      // It is written itself then: there is a new one above it.
      restore_rights_in(current_, name);
      if (move_up(name, aside)) return {};
      return cannot_remove(errno);
    }
    FileDescriptor below(openat(current_.get(), name.c_str(), folder_flags));
    if (!below.valid() && errno == EACCES) {
      restore_rights_in(current_, name);
      below = FileDescriptor(openat(current_.get(), name.c_str(), folder_flags));
    }
    struct stat status {};
    if (!below.valid() || fstat(below.get(), &status) != 0) return cannot_remove(errno);
    // What somebody has mounted there is not ours, also where it is of the same disk.
    if (status.st_dev != disk_ || mount_of(below) != mount_) return cannot_remove(EXDEV);
    way_.push_back({name, status.st_ino, {}});
    current_ = std::move(below);
    return {};
  }

  // By "..", because a descriptor for each level would run out; whoever moves the folder meanwhile is
  // noticed, and so is who goes on filling it.
  Result<> go_up() {
    FileDescriptor above(openat(current_.get(), "..", folder_flags));
    struct stat status {};
    if (!above.valid() || fstat(above.get(), &status) != 0) return cannot_remove(errno);
    const Level left = std::move(way_.back());
    way_.pop_back();
    current_ = std::move(above);
    const bool is_back = status.st_dev == disk_ && status.st_ino == way_.back().inode;
    if (is_back && remove_name(left.name.c_str(), AT_REMOVEDIR)) return {};
    if (is_back && errno != ENOTEMPTY && errno != EEXIST) return cannot_remove(errno);
    if (is_back && ++refilled_ < refilled_max) return {};
    return failed("cannot remove " + printable(path_) + ": it is being changed meanwhile");
  }

  const std::string& path_;
  FileDescriptor root_;
  FileDescriptor current_;
  dev_t disk_ = 0;
  std::uint64_t mount_ = 0;
  std::vector<Level> way_;  // from the root of the tree to the current folder
  std::size_t noted_ = 0;   // folders, on all levels
  std::size_t refilled_ = 0;
  std::uint64_t moved_ = 0;
};

}  // namespace

Result<> remove_folder(const std::string& path) { return TreeRemoval(path).run(); }

}  // namespace tutti::files
