#include "cli/local_strays.hpp"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/files/files.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/process.hpp"

namespace tutti::cli {
namespace {

namespace fs = std::filesystem;

// Of programs of any version, and so of their processes.
constexpr std::string_view stray_program = "tutti";
// How the kernel names the lock of a part that was removed: `lock`, or `store.db.lock`.
constexpr std::string_view removed_lock = "lock (deleted)";

std::string in_proc(pid_t pid, const std::string& what) { return "/proc/" + std::to_string(pid) + what; }

constexpr std::string_view removed_mark = " (deleted)";
constexpr std::string_view gateway_part = "gateway";

// Somebody else's is not to be ended, and in another namespace the same path is another folder.
bool is_of_this_user_and_place(pid_t pid) {
  struct stat status {};
  if (::stat(in_proc(pid, "").c_str(), &status) != 0 || status.st_uid != ::geteuid()) return false;
  for (const char* kind : {"/ns/mnt", "/ns/pid"}) {
    std::error_code unseen;
    const fs::path its = fs::read_symlink(in_proc(pid, kind), unseen);
    if (unseen || its != fs::read_symlink("/proc/self" + std::string(kind), unseen)) return false;
  }
  return true;
}

bool holds_removed_lock(pid_t pid) {
  const auto descriptors = files::list_folder(in_proc(pid, "/fd"));
  if (!descriptors || !*descriptors) return false;
  return std::any_of((*descriptors)->begin(), (*descriptors)->end(), [&](const std::string& descriptor) {
    std::error_code closed;
    return fs::read_symlink(in_proc(pid, "/fd/" + descriptor), closed).string().ends_with(removed_lock);
  });
}

// Whoever started a part by hand has its words elsewhere.
bool writes_log_of_home(pid_t pid, const std::string& home) {
  std::error_code closed;
  return fs::read_symlink(in_proc(pid, "/fd/1"), closed).string().starts_with(home + "/logs/");
}

// A gateway keeps nothing in its home, and so locks nothing there.
bool writes_removed_log(pid_t pid, const std::string& home) {
  std::error_code closed;
  const std::string log = fs::read_symlink(in_proc(pid, "/fd/1"), closed).string();
  return log.starts_with(home + "/logs/") && log.ends_with(removed_mark);
}

// As it would be without links, also where it is gone, or from where on it cannot be read.
std::string without_links(const std::string& path) {
  if (path.size() > PATH_MAX) return path;
  fs::path rest;
  for (fs::path known = path; known.has_relative_path(); known = known.parent_path()) {
    std::error_code unknown;
    const fs::path plain = fs::weakly_canonical(known, unknown);
    if (!unknown) return (rest.empty() ? plain : plain / rest).string();
    rest = rest.empty() ? known.filename() : known.filename() / rest;
  }
  return path;
}

// The words of a controller or an agent whose folder is below the home, or of its gateway, as `tutti up`
// starts them.
std::optional<std::string> part_below(const std::string& home, const std::vector<std::string>& words) {
  if (words.size() < 2) return std::nullopt;
  const bool is_gateway = words[1] == gateway_part;
  if (!is_gateway && words[1] != "controller" && words[1] != "agent") return std::nullopt;
  const auto flag = std::find(words.begin(), words.end(), is_gateway ? "--home" : "--data");
  if (flag == words.end() || flag + 1 == words.end()) return std::nullopt;
  if (!(without_links(*(flag + 1)) + "/").starts_with(home + "/")) return std::nullopt;
  return words[1];
}

bool has_lost_home(pid_t pid, const std::string& part, const std::string& home) {
  return part == gateway_part ? writes_removed_log(pid, home) : holds_removed_lock(pid);
}

bool is_shim_of_removed(pid_t pid, const fs::path& held) {
  return !held.empty() && is_of_this_user_and_place(pid) && rank::agent_folder_is_gone(held);
}

// A home that was moved has taken the folders of its ranks along.
bool is_shim_of_home(pid_t pid, const fs::path& held, const std::string& home) {
  std::error_code closed;
  return is_of_this_user_and_place(pid) &&
         (held.empty() || fs::read_symlink(held, closed).string().starts_with(home + "/"));
}

}  // namespace

std::vector<Stray> strays_of(const std::string& home, HomeLoss loss) {
  const bool removed = loss == HomeLoss::removed;
  const std::string place = without_links(home);
  const std::string own_name = rank::process_name(::getpid());
  std::vector<Stray> strays;
  for (const pid_t pid : rank::all_processes()) {
    // Its words are in its memory, and only those of this program are asked for them.
    const std::string name = rank::process_name(pid);
    if ((name != own_name && !name.starts_with(stray_program)) || !is_of_this_user_and_place(pid)) continue;
    const auto words = rank::words_of(pid);
    if (!words) continue;
    const auto part = part_below(place, *words);
    if (!part || !(removed ? has_lost_home(pid, *part, place) : writes_log_of_home(pid, place))) continue;
    const auto process = rank::read_process(pid);
    if (process) strays.push_back({*part, {.pid = pid, .start_time = process->start_time}});
  }
  for (const auto& [folder, shim] : rank::shims_by_folder(home + "/nodes")) {
    const fs::path held = rank::held_folder(shim.pid, fs::path(folder).filename().string());
    if (removed ? is_shim_of_removed(shim.pid, held) : is_shim_of_home(shim.pid, held, place))
      strays.push_back({"shim", shim});
  }
  return strays;
}

}  // namespace tutti::cli
