// How the agent starts and ends shims. Any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::rank {

// The program of this very process, whatever lies at its path by now: half of another version perhaps, or
// nothing.
constexpr const char* own_program = "/proc/self/exe";
// What the kernel calls a process that was just started from it, until it says its name.
constexpr std::string_view own_program_name = "exe";

// Runs `tutti_program shim folder place`, where the place is that of the agent's folder, in a session of its
// own, with nothing of the caller's but its environment, and this file if there is one (secrets.hpp). The
// shim is the caller's child: reap it, or let it be inherited.
Result<pid_t> start_shim(const std::string& tutti_program, const std::string& folder, int secrets = -1);

// Becomes readable when the process ends, whoever its parent is.
Result<files::FileDescriptor> open_pidfd(pid_t pid);
// The process of this descriptor has ended. Does not wait.
bool has_ended(const files::FileDescriptor& process);

// Asks the shim to end its rank, within the grace period or at once. A shim that is gone already is fine: its
// rank has ended; a stranger with the same pid is left alone.
Result<> end_shim(const ShimProcess& shim, bool at_once);

}  // namespace tutti::rank
