// Memory, semaphores and message queues of System V, and the queues of POSIX, of the ranks of one attempt on
// one node: in a namespace of theirs, which goes with the last process in it, and all that is in it with it.
// For processes of one thread.
#pragma once

#include <string>

namespace tutti::rank {

// This process is in a namespace of its own from now on.
bool leave_the_hosts_memory();
// In that of the others of its attempt which run: they note in this folder, which is root's, who is in it. 0,
// or why not; then the process must not go on.
int enter_memory_of(const std::string& folder);

}  // namespace tutti::rank
