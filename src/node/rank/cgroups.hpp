// Cgroups as folders of the kernel's tree: those that ranks have made inside their own, and those that
// nobody has removed. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::rank {

constexpr const char* cgroup_root = "/sys/fs/cgroup";

// The cgroup and those below it, each before what it holds; a bounded number of them.
struct CgroupTree {
  std::vector<std::string> folders;
  bool whole = true;  // false: one of them could not be read, and may hold others
};
CgroupTree cgroup_tree(const std::string& folder);

// With all cgroups below it, a bounded number at a time. False while one of them holds somebody, or if more
// are left; one that is not there is fine.
bool remove_cgroup(const std::string& folder);

// What the names of the cgroups of a node's ranks begin with: the rest names the rank. It holds the place of
// the agent's folder on this machine, because two agents of one machine must not share a name: who ends a
// cgroup ends all it holds.
Result<std::string> cgroup_prefix(const std::string& node, const std::string& agent_folder);

struct RankCgroup {
  std::string name;
  std::string rank;

  friend bool operator==(const RankCgroup&, const RankCgroup&) = default;
};
// All cgroups of ranks of the folder that this prefix holds, a hold or one that only limits: also those that
// were made when the node was called otherwise, in order of their names.
std::vector<RankCgroup> cgroups_of(const std::string& prefix, const std::string& root = cgroup_root);
// Kills all that the cgroups of this name hold, and removes them. False if something is left: once more,
// then.
bool clear_cgroups(const std::string& name, const std::string& root = cgroup_root);
// The same for all cgroups_of() this prefix but those whose ranks live on, for so long at most.
bool sweep_cgroups(const std::string& prefix, const std::function<bool(const std::string&)>& lives_on,
                   Duration patience, const std::string& root = cgroup_root);

}  // namespace tutti::rank
