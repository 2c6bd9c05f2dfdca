// Removes a tree that may have been made to hurt: thousands of folders in each other, millions of files in
// one, links to elsewhere. One name at a time, relative to an open folder; memory does not grow with what a
// folder holds, the stack of calls not with its depth. System calls alone: libtorch brings a std::filesystem
// of its own along in places, and removing with a mixture of two ends the program.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "base/files/rights.hpp"
#include "base/files/tree.hpp"

namespace tutti::files {
namespace {

// Deeper ones are moved up to one of the first folders of the tree, so that the way back stays short.
constexpr std::size_t levels_max = 1024;
constexpr std::size_t noted_max = 65'536;
constexpr std::size_t refilled_max = 1000;
constexpr std::size_t staying_max = 1000;

class TreeRemoval {
 public:
  TreeRemoval(const std::string& path, const RemoveOptions& options) : path_(path), options_(options) {}

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
    root_ = duplicate(current_);
    way_.push_back({.name = "", .inode = status.st_ino, .owner = status.st_uid, .folders = {}, .stay = {}});
    for (;;) {
      if (way_.back().folders.empty()) {
        if (auto emptied = empty_current(); !emptied) return emptied;
      }
      const bool holds_folders = !way_.back().folders.empty();
      if (!holds_folders && way_.size() == 1) break;
      if (auto moved = holds_folders ? go_down() : go_up(); !moved) return moved;
    }
    if (why_) return *why_;
    current_.reset();
    if (rmdir(path_.c_str()) != 0 && errno != ENOENT) return cannot_remove(errno);
    return {};
  }

 private:
  struct Level {
    std::string name;  // in the folder above
    ino_t inode = 0;
    uid_t owner = 0;
    std::vector<std::string> folders;  // in it, still to be removed
    std::set<std::string> stay;        // in it, and cannot be removed
  };

  Error cannot_remove(int error_number) const {
    if (error_number == EXDEV)
      return failed("cannot remove " + printable(path_) + ": something else is mounted in it");
    return failed_errno("cannot remove " + printable(path_), error_number);
  }

  // The rest goes all the same, and the first of them is told. So many of them are a disk that fails.
  Result<> leave(const std::string& name, Error why) {
    if (!why_) why_ = std::move(why);
    way_.back().stay.insert(name);
    if (++staying_ > staying_max) return *why_;
    return {};
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
    auto& level = way_.back();
    while (level.folders.empty() || noted_ < noted_max) {
      errno = 0;
      const dirent* entry = readdir(listing.get());
      if (entry == nullptr && errno != 0) return cannot_remove(errno);
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name == "." || name == ".." || level.stay.contains(name)) continue;
      if (entry->d_type != DT_DIR && remove_name(entry->d_name)) continue;
      if (entry->d_type != DT_DIR && errno != EISDIR && errno != EPERM) {
        if (auto left = leave(name, cannot_remove(errno)); !left) return left;
        continue;
      }
      level.folders.push_back(name);
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

  // Who moves the folder of somebody else into his own may not empty it himself, and has no right to have it
  // emptied. In a folder that is his own everything else may go: he could remove it.
  bool may_enter(const struct stat& below) const {
    const uid_t self = geteuid();
    if (!options_.of_users && way_.front().owner == self) return true;
    return way_.back().owner == self || below.st_uid == way_.back().owner;
  }

  Error somebody_elses(const std::string& name, uid_t owner) const {
    return failed("cannot remove " + printable(path_) + ": " + shown(name) +
                  " in it is somebody else's (uid " + std::to_string(owner) + ")");
  }

  static FileDescriptor duplicate(const FileDescriptor& folder) {
    return FileDescriptor(fcntl(folder.get(), F_DUPFD_CLOEXEC, 0));
  }

  // Among those of its owner: in a folder of this process's own it would be anybody's. Under a name that
  // nobody foretells; network disks do not know the flag.
  bool move_up(const std::string& name) const {
    const int above = theirs_.valid() ? theirs_.get() : root_.get();
    const std::string aside = unforeseen_name(".tutti-deep-");
    if (renameat2(current_.get(), name.c_str(), above, aside.c_str(), RENAME_NOREPLACE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    return renameat(current_.get(), name.c_str(), above, aside.c_str()) == 0;
  }

  Result<> go_down() {
    const std::string name = std::move(way_.back().folders.back());
    way_.back().folders.pop_back();
    --noted_;
    if (remove_name(name.c_str(), AT_REMOVEDIR)) return {};  // it was empty
    FileDescriptor below(openat(current_.get(), name.c_str(), folder_flags));
    if (!below.valid() && errno == EACCES) {
      restore_rights_in(current_, name);
      below = FileDescriptor(openat(current_.get(), name.c_str(), folder_flags));
    }
    if (!below.valid() && errno == ENOENT) return {};
    struct stat status {};
    if (!below.valid() || fstat(below.get(), &status) != 0) return leave(name, cannot_remove(errno));
    // What somebody has mounted there is not ours, also where it is of the same disk.
    if (status.st_dev != disk_ || mount_of(below) != mount_) return leave(name, cannot_remove(EXDEV));
    if (!may_enter(status)) return leave(name, somebody_elses(name, status.st_uid));
    if (way_.size() - theirs_at_ > levels_max) {
      if (move_up(name)) return {};
      if (errno != EACCES) return leave(name, cannot_remove(errno));
      // It is written itself then: there is a new one above it.
      restore_rights_in(current_, name);
      if (move_up(name)) return {};
      return leave(name, cannot_remove(errno));
    }
    if (options_.of_users && way_.back().owner == geteuid() && status.st_uid != geteuid()) {
      theirs_ = duplicate(below);
      theirs_at_ = way_.size();
    }
    way_.push_back({.name = name, .inode = status.st_ino, .owner = status.st_uid, .folders = {}, .stay = {}});
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
    const bool is_back =
        status.st_dev == disk_ && status.st_ino == way_.back().inode && status.st_uid == way_.back().owner;
    if (way_.size() <= theirs_at_) {
      theirs_.reset();
      theirs_at_ = 0;
    }
    if (is_back && !left.stay.empty()) return leave_above(left);
    if (is_back && remove_name(left.name.c_str(), AT_REMOVEDIR)) return {};
    if (is_back && errno != ENOTEMPTY && errno != EEXIST) return leave(left.name, cannot_remove(errno));
    if (is_back && ++refilled_ < refilled_max) return {};
    return failed("cannot remove " + printable(path_) + ": it is being changed meanwhile");
  }

  // With what stays in it.
  Result<> leave_above(const Level& left) {
    staying_ -= left.stay.size();
    return leave(left.name, *why_);
  }

  const std::string& path_;
  const RemoveOptions options_;
  FileDescriptor root_;
  FileDescriptor theirs_;      // the first folder on the way that is a user's, if the root is not
  std::size_t theirs_at_ = 0;  // the levels above it
  FileDescriptor current_;
  dev_t disk_ = 0;
  std::uint64_t mount_ = 0;
  std::vector<Level> way_;    // from the root of the tree to the current folder
  std::size_t noted_ = 0;     // folders, on all levels
  std::size_t staying_ = 0;   // names, on all levels
  std::optional<Error> why_;  // the first of those
  std::size_t refilled_ = 0;
};

}  // namespace

Result<> remove_folder(const std::string& path, const RemoveOptions& options) {
  return TreeRemoval(path, options).run();
}

}  // namespace tutti::files
