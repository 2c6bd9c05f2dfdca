// Disks that users serve themselves (FUSE): one that takes what is asked of it and does not answer keeps
// whoever waits for it from his end, even where he was killed. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace tutti::rank {

// Gives up those of this user of which something waits to be answered: who waits hears that it has failed.
// How many; none where the kernel does not list them.
std::size_t abort_waiting_disks_of(uid_t user, const std::string& listing = "/sys/fs/fuse/connections");

}  // namespace tutti::rank
