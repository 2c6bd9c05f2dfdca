#include "node/rank/cgroups.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <set>
#include <string_view>
#include <thread>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "node/rank/hold.hpp"

namespace tutti::rank {
namespace {

constexpr std::size_t cgroups_at_a_time_max = 10'000;
constexpr Duration sweep_again_after = 20ms;
constexpr std::size_t node_name_bytes_max = 64;
constexpr std::string_view name_begin = "tutti-";
// Below the root: version 2 alone and beside version 1, then the controllers of version 1 that tutti uses.
constexpr std::array hierarchies{"", "/unified", "/freezer", "/memory", "/cpu", "/pids", "/devices"};

struct CloseStream {
  void operator()(DIR* folder) const { closedir(folder); }
};
using FolderStream = std::unique_ptr<DIR, CloseStream>;

bool is_cgroup_entry(const dirent& entry) {
  const std::string_view name = entry.d_name;
  return entry.d_type == DT_DIR && name != "." && name != "..";
}

// "" if there is none. The descriptor stays the caller's.
std::string first_cgroup_in(int folder) {
  files::FileDescriptor again(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const FolderStream stream(again.valid() ? fdopendir(again.get()) : nullptr);
  if (!stream) return "";
  static_cast<void>(again.release());
  while (const dirent* entry = readdir(stream.get()))
    if (is_cgroup_entry(*entry)) return entry->d_name;
  return "";
}

// "-DEVICE.INODE" in the name of a cgroup, or in what such names begin with: in front of the rank, whose name
// has no such line in it; that of a node may.
std::string_view folder_in(std::string_view name) {
  const std::size_t end = name.rfind('-');
  if (end == std::string_view::npos || end == 0) return "";
  const std::size_t begin = name.rfind('-', end - 1);
  return begin == std::string_view::npos ? "" : name.substr(begin, end - begin);
}

}  // namespace

CgroupTree cgroup_tree(const std::string& folder) {
  CgroupTree tree{.folders = {folder}};
  auto& folders = tree.folders;
  for (std::size_t at = 0; at < folders.size() && folders.size() < cgroups_at_a_time_max; ++at) {
    const FolderStream stream(opendir(folders[at].c_str()));
    if (!stream && errno != ENOENT) tree.whole = false;
    if (!stream) continue;
    while (const dirent* entry = readdir(stream.get()))
      if (is_cgroup_entry(*entry)) folders.push_back(folders[at] + "/" + entry->d_name);
  }
  return tree;
}

// Down to a cgroup that holds no other and up again, by one descriptor: paths of hostile depth are too long
// to be named.
bool remove_cgroup(const std::string& folder) {
  if (rmdir(folder.c_str()) == 0 || errno == ENOENT) return true;
  files::FileDescriptor here(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  std::vector<std::string> way;
  for (std::size_t removed = 0; here.valid() && removed < cgroups_at_a_time_max;) {
    if (std::string below = first_cgroup_in(here.get()); !below.empty()) {
      if (way.size() >= cgroups_at_a_time_max) return false;
      here = files::FileDescriptor(
          openat(here.get(), below.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      way.push_back(std::move(below));
      continue;
    }
    if (way.empty()) return rmdir(folder.c_str()) == 0 || errno == ENOENT;
    here = files::FileDescriptor(openat(here.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!here.valid() || unlinkat(here.get(), way.back().c_str(), AT_REMOVEDIR) != 0) return false;
    way.pop_back();
    ++removed;
  }
  return false;
}

Result<std::string> cgroup_prefix(const std::string& node, const std::string& agent_folder) {
  struct stat place {};
  if (stat(agent_folder.c_str(), &place) != 0) return failed_errno("cannot read " + agent_folder, errno);
  return std::string(name_begin) + node.substr(0, node_name_bytes_max) + "-" + std::to_string(place.st_dev) +
         "." + std::to_string(place.st_ino) + "-";
}

std::vector<RankCgroup> cgroups_of(const std::string& prefix, const std::string& root) {
  const std::string_view place = folder_in(prefix);
  std::set<std::string> found;
  for (const char* hierarchy : hierarchies) {
    const auto names = files::list_folder(root + hierarchy + "/tutti");
    if (!names || !*names) continue;
    for (const auto& name : **names)
      if (name.starts_with(name_begin) && folder_in(name) == place) found.insert(name);
  }
  std::vector<RankCgroup> cgroups;
  cgroups.reserve(found.size());
  for (const auto& name : found) cgroups.push_back({name, name.substr(name.rfind('-') + 1)});
  return cgroups;
}

bool clear_cgroups(const std::string& name, const std::string& root) {
  const Hold hold(name, root);
  if (name.empty() || name.find('/') != std::string::npos) return true;
  hold.kill();
  bool all = hold.remove();
  for (const char* hierarchy : hierarchies) all = remove_cgroup(root + hierarchy + "/tutti/" + name) && all;
  return all;
}

bool sweep_cgroups(const std::string& prefix, const std::function<bool(const std::string&)>& lives_on,
                   Duration patience, const std::string& root) {
  const auto give_up_at = std::chrono::steady_clock::now() + patience;
  for (;;) {
    bool all = true;
    for (const auto& cgroup : cgroups_of(prefix, root)) {
      if (!lives_on(cgroup.rank)) all = clear_cgroups(cgroup.name, root) && all;
    }
    if (all || std::chrono::steady_clock::now() >= give_up_at) return all;
    std::this_thread::sleep_for(sweep_again_after);
  }
}

}  // namespace tutti::rank
