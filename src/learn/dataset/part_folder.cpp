#include "learn/dataset/part_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
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

}  // namespace

Result<PartFolder> PartFolder::create(std::string place, bool replace) {
  place = without_slashes_at_the_end(std::move(place));
  if (auto free = check_place(place, replace); !free) return std::move(free).error();
  std::string path = place + ".part-" + std::to_string(::getpid());
  // One of a process of this number that was killed.
  if (auto removed = files::remove_folder(path); !removed) return std::move(removed).error();
  if (::mkdir(path.c_str(), 0777) != 0) return failed_errno("cannot make the folder " + path, errno);
  return PartFolder(std::move(place), std::move(path), replace);
}

PartFolder::PartFolder(PartFolder&& other) noexcept
    : place_(std::move(other.place_)), path_(std::exchange(other.path_, "")), replace_(other.replace_) {}

PartFolder& PartFolder::operator=(PartFolder&& other) noexcept {
  std::swap(place_, other.place_);
  std::swap(path_, other.path_);
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
  const std::string aside = path_ + ".old";
  const bool replaces = exists(place_);
  if (replaces) {
    if (auto moved = rename_folder(place_, aside); !moved) return moved;
  }
  if (auto moved = rename_folder(path_, place_); !moved) {
    if (replaces) ::rename(aside.c_str(), place_.c_str());
    return moved;
  }
  path_ = replaces ? aside : "";
  remove();
  const auto parent = std::filesystem::path(place_).parent_path();
  return files::sync_folder(parent.empty() ? "." : parent.string());
}

}  // namespace tutti::dataset
