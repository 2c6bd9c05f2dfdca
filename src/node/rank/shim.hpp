// The small parent of one rank: it starts the command, writes its output to the log, and ends every process
// the rank leaves behind. It outlives the agent, so that an agent can be replaced under running ranks. A
// process of its own, single-threaded; it owns the process's signals and children.
//
// SIGTERM asks the rank to end: SIGTERM to all its processes, SIGKILL after the grace period. SIGUSR1:
// SIGKILL at once.
#pragma once

#include <string>

namespace tutti::rank {

// The exit codes of a rank that did not start, as a shell gives them.
constexpr int exit_code_not_runnable = 126;
constexpr int exit_code_not_found = 127;
constexpr int exit_code_signal_base = 128;

// Of a shim that has told no end of its rank (told_end.hpp): nothing of it has run, and the disk does not
// take why. A rank may end with it, too.
constexpr int exit_code_not_begun = 125;

// What `tutti shim FOLDER` runs. Returns the exit code of the rank, which the folder has on record as well:
// who finds none there, because the disk would not take it, has it from the shim itself.
int run_shim(const std::string& folder);

}  // namespace tutti::rank
