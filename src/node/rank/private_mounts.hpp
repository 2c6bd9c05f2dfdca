// What the ranks of an attempt have for themselves on a node: /tmp, /var/tmp and /dev/shm, shared by those of
// one attempt, seen by nobody else, and removed with it; a /run/user in which nobody is; and a /proc that
// shows no processes of others. Each rank's process has a mount namespace of its own, in which folders that
// its agent has made lie in the places that all share, and shares memory of System V with those of its
// attempt alone (private_memory.hpp). Any thread, unless it says otherwise.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.hpp"

namespace tutti::rank {

// Both folders are root's, and closed to everybody else: what is in them is the attempt's.
struct PrivatePlaces {
  std::string folder;  // for what lies on the disk
  std::string memory;  // for what lies in memory, on the disk that is there for it

  friend bool operator==(const PrivatePlaces&, const PrivatePlaces&) = default;
};

// Where nothing that ranks of others are to reach may lie: they would not see it.
bool is_below_private_place(const std::string& path);

// What is written there is memory of this machine's.
bool is_in_memory(const char* path);

// This process may have a mount namespace of its own, a /proc in it that hides others, and memory of its own.
// Tries it, in a child.
bool can_have_private_mounts();

// Those that are there stay. What somebody else has put in their place is an error.
Result<> make_private_places(const PrivatePlaces& places);

// The calling process, of one thread, and all that it starts see them from now on. 0, or why not; then the
// process must not go on.
int enter_private_places(const PrivatePlaces& places);

}  // namespace tutti::rank
