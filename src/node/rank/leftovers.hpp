// Ends what is left of a rank without the help of its shim, which may have been killed, stopped or held up.
// Any thread.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/rank/hold.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::rank {

// Kills every process of the rank but the shim: what its cgroup holds, or, where there is none, what is in
// the shim's session; and what descends from a shim that lives. True when none was found any more, and no
// descendant can have been missed: until then it is to be called again. Without a cgroup a process that made
// a session of its own is not found once the shim has gone.
bool kill_leftovers(const Hold& hold, const ShimProcess& shim);

// What the process was started with; nothing if it cannot be read. It is in the memory of the process, which
// may wait for a disk that does not answer: only for processes of this program, by their names.
std::optional<std::vector<std::string>> words_of(pid_t pid);

// The cgroup of a rank that the process is in, "" for none.
std::string hold_of(pid_t pid);

// The shims of all ranks below this folder, by their command lines: a rank can remove or replace what its own
// folder says. Processes of another user than this one are none, and neither are they in all that follows.
// Processes that a rank's cgroup holds are none, whatever they call themselves, nor are those
// that descend from a shim of the same agent's. Without cgroups, or out of them, a rank whose shim has gone
// can run this very program, and is believed.
std::vector<ShimProcess> shims_below(const std::string& folder);
// The process is one of a rank whose shim is such a one.
bool descends_from_shim_below(pid_t pid, const std::string& folder);
// The process is one of a rank of this agent's, as the processes above it tell or the cgroup that it is in.
bool is_of_ranks_of(pid_t pid, const std::string& node, const std::string& agent_folder);
// With the folders of their ranks.
std::multimap<std::string, ShimProcess> shims_by_folder(const std::string& above);

// A shim holds the folder of its rank open, wherever that is now; "" if it cannot be seen.
std::filesystem::path held_folder(pid_t shim, const std::string& rank_name);
// The folder of the agent, in which a shim holds that of its rank, was removed with all that was in it. That
// a rank has removed its own, or moved it, is no sign of that.
bool agent_folder_is_gone(const std::filesystem::path& held);
// By its words the shim was started by an agent of this very folder, or of another one, whatever they are
// called by now and wherever the rank has its own. Those of earlier versions do not tell: then both are
// false.
bool began_in(pid_t shim, const std::string& agent_folder);
bool began_elsewhere(pid_t shim, const std::string& agent_folder);
// Sure that this process is not the shim of the rank of this folder: what the folder says of it is in the
// rank's hands, and whoever is taken for a shim is ended with all that descends from him.
bool is_anothers(const ShimProcess& shim, const std::string& folder);

// SIGKILL, to this very process.
void kill_shim(const ShimProcess& shim);
// Lets a stopped shim go on.
void wake_shim(const ShimProcess& shim);

}  // namespace tutti::rank
