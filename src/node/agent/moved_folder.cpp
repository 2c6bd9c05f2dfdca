#include "node/agent/moved_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <system_error>

#include "node/agent/folder_lock.hpp"
#include "node/rank/leftovers.hpp"

namespace tutti::agent {
namespace {

namespace fs = std::filesystem;

bool is_same(const std::string& one, const std::string& other) {
  struct stat first {};
  struct stat second {};
  return ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

Result<> check_no_ranks_elsewhere(const std::string& folder) {
  std::string pids;
  std::string place;  // of one whose folder is somewhere
  for (const auto& [rank_folder, shim] : rank::shims_by_folder(folder + "/ranks")) {
    const fs::path held = rank::held_folder(shim.pid, fs::path(rank_folder).filename().string());
    if (held.empty()) continue;
    const std::string home = held.string() + "/../..";
    if (is_same(home, folder)) continue;
    // A rank may have moved its own folder, to where it looks as in one of an agent's.
    if (rank::began_elsewhere(shim.pid, home)) continue;
    const bool gone = rank::agent_folder_is_gone(held);
    // So may one whose shim is of an earlier version, and then its folder is nobody's.
    if (!gone && ::access((home + "/identity").c_str(), F_OK) != 0) continue;
    // In a container of its own another agent may have a folder of the same name, and answers for it.
    if (!gone && FolderLock::holder_of(home)) continue;
    pids += (pids.empty() ? "" : " ") + std::to_string(shim.pid);
    std::error_code unknown;
    if (!gone) place = fs::read_symlink(held, unknown).string();
  }
  if (pids.empty()) return {};
  const std::string how = place.empty()
                              ? "it was removed"
                              : "it was moved away or unmounted, and of one of them it is " + place + " now";
  const std::string back = place.empty() ? "" : "move or mount the folder back, or ";
  return failed("ranks that an agent started here run on, and this is not their folder: " + how)
      .within(folder)
      .remedy(back + "end the ranks with `kill " + pids + "`");
}

std::vector<std::string> ranks_without_agent(const std::string& folder) {
  // Of each folder its own: others may be somebody else's.
  std::map<std::string, std::string> pids;
  std::map<std::string, std::string> pids_of_gone;
  const auto add = [](std::string& known, pid_t pid) {
    known += (known.empty() ? "" : " ") + std::to_string(pid);
  };
  for (const auto& [rank_folder, shim] : rank::shims_by_folder("")) {
    const fs::path home = fs::path(rank_folder).parent_path().parent_path();
    const fs::path held = rank::held_folder(shim.pid, fs::path(rank_folder).filename().string());
    if (held.empty()) continue;
    if (home != folder && !rank::began_elsewhere(shim.pid, held.string() + "/../..") &&
        rank::agent_folder_is_gone(held)) {
      add(pids_of_gone[home.string()], shim.pid);
      continue;
    }
    // Of another container the folder may have the same name.
    if (!is_same(held, rank_folder)) continue;
    // This agent's own lock would go with a look at it, by whichever name.
    if (is_same(home, folder)) continue;
    if (!is_same(home / "lock", folder + "/lock") && FolderLock::holder_of(home)) continue;
    add(pids[home.string()], shim.pid);
  }
  std::vector<std::string> told;
  told.reserve(pids.size() + pids_of_gone.size());
  for (const auto& [home, known] : pids) {
    told.push_back("ranks of " + home +
                   " run on this machine and no agent answers for them: what they use may be given out "
                   "twice. Start their agent (`--data " +
                   home + "`), or end them (`kill " + known + "`)");
  }
  for (const auto& [home, known] : pids_of_gone) {
    told.push_back(
        "ranks of " + home +
        " run on this machine, and that folder was removed: no agent can answer for them, and what "
        "they use may be given out twice. End them (`kill " +
        known + "`)");
  }
  return told;
}

}  // namespace tutti::agent
