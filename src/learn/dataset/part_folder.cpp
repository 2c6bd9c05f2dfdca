#include "learn/dataset/part_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "learn/dataset/format.hpp"

namespace tutti::dataset {
namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

// What the writer of a dataset never made: nobody but its owner may remove it.
Result<> check_nothing_else(const std::string& place) {
  constexpr std::size_t named_max = 3;
  const auto names = files::list_folder(place);
  if (!names) return names.error();
  if (!*names) return {};
  std::string others;
  std::size_t count = 0;
  for (const std::string& name : **names) {
    if (name == description_name || name == tokenizer_name || is_shard_name(name)) continue;
    if (++count <= named_max) others += (others.empty() ? "" : ", ") + files::shown(name);
  }
  if (count == 0) return {};
  if (count > named_max) others += " and " + std::to_string(count - named_max) + " more";
  return invalid(place + " holds more than a dataset, and is not replaced: " + others)
      .remedy("move that elsewhere, or name another folder");
}

Result<> check_place(const std::string& place, bool replace) {
  if (place.empty()) return invalid("the dataset needs a folder");
  if (!exists(place)) return {};
  if (!replace)
    return invalid(place + " exists already").remedy("--replace writes a new dataset in its place");
  if (!exists(place + "/" + description_name))
    return invalid(place + " is no dataset, and is not replaced").remedy("name another folder");
  return check_nothing_else(place);
}

std::string without_slashes_at_the_end(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Result<> rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return failed_errno("cannot move " + from + " to " + to, errno);
  return {};
}

constexpr std::string_view part_mark = ".part-";
constexpr std::string_view old_ending = ".old";

std::string folder_of(const std::string& place) {
  const auto parent = std::filesystem::path(place).parent_path();
  return parent.empty() ? "." : parent.string();
}

// A process holds its part as long as it lives: the lock goes with it, however it ends. Not valid if another
// has it, or if the file system has no locks for folders: then it is not known whose it is.
files::FileDescriptor hold(const std::string& part, int waiting = LOCK_NB) {
  files::FileDescriptor folder(::open(part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (folder.valid() && ::flock(folder.get(), LOCK_EX | waiting) != 0) folder.reset();
  return folder;
}

bool is_still(const files::FileDescriptor& folder, const std::string& path) {
  struct stat held {};
  struct stat there {};
  return ::fstat(folder.get(), &held) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

// A new one, held from the start: where another process took it for one that was left, it is made again.
Result<files::FileDescriptor> make_held(const std::string& path) {
  for (;;) {
    if (::mkdir(path.c_str(), 0777) != 0) return failed_errno("cannot make the folder " + path, errno);
    auto held = hold(path, 0);
    if (!held.valid() || is_still(held, path)) return held;
  }
}

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char letter) { return letter >= '0' && letter <= '9'; });
}

// What processes that are gone have left beside the place. A dataset that had stepped aside for a new one,
// and whose place is empty since, goes back there.
Result<> clear_what_others_left(const std::string& place) {
  const std::string folder = folder_of(place);
  const auto names = files::list_folder(folder);
  if (!names) return names.error();
  if (!*names) return {};
  const std::string begin = std::filesystem::path(place).filename().string() + std::string(part_mark);
  for (const std::string& name : **names) {
    if (!name.starts_with(begin)) continue;
    std::string_view number = std::string_view(name).substr(begin.size());
    const bool stepped_aside = number.ends_with(old_ending);
    if (stepped_aside) number.remove_suffix(old_ending.size());
    if (!is_digits(number)) continue;
    const std::string path = folder + "/" + name;
    const auto held = hold(path);
    if (!held.valid()) continue;
    if (stepped_aside && !exists(place)) {
      if (auto back = rename_folder(path, place); !back) return back;
    } else if (auto removed = files::remove_folder(path); !removed) {
      return removed;
    }
  }
  return {};
}

}  // namespace

Result<PartFolder> PartFolder::create(std::string place, bool replace) {
  place = without_slashes_at_the_end(std::move(place));
  if (auto cleared = clear_what_others_left(place); !cleared) return std::move(cleared).error();
  if (auto free = check_place(place, replace); !free) return std::move(free).error();
  std::string path = place + std::string(part_mark) + std::to_string(::getpid());
  auto held = make_held(path);
  if (!held) return std::move(held).error();
  return PartFolder(std::move(place), std::move(path), std::move(*held), replace);
}

PartFolder::PartFolder(PartFolder&& other) noexcept
    : place_(std::move(other.place_)),
      path_(std::exchange(other.path_, "")),
      held_(std::move(other.held_)),
      replace_(other.replace_) {}

PartFolder& PartFolder::operator=(PartFolder&& other) noexcept {
  std::swap(place_, other.place_);
  std::swap(path_, other.path_);
  std::swap(held_, other.held_);
  std::swap(replace_, other.replace_);
  return *this;
}

void PartFolder::remove() {
  if (!path_.empty()) static_cast<void>(files::remove_folder(std::exchange(path_, "")));
}

// What is replaced steps aside first, and comes back if the new one cannot take its place.
Result<> PartFolder::move_to_place() {
  if (auto flushed = files::sync_folder(path_); !flushed) return flushed;
  if (auto free = check_place(place_, replace_); !free) return free;
  const std::string aside = path_ + std::string(old_ending);
  const bool replaces = exists(place_);
  // Nobody is to take it for what a process has left that is gone.
  const auto old_held = replaces ? hold(place_) : files::FileDescriptor();
  if (replaces) {
    if (auto moved = rename_folder(place_, aside); !moved) return moved;
  }
  if (auto moved = rename_folder(path_, place_); !moved) {
    if (replaces) ::rename(aside.c_str(), place_.c_str());
    return moved;
  }
  path_ = replaces ? aside : "";
  remove();
  return files::sync_folder(folder_of(place_));
}

}  // namespace tutti::dataset
