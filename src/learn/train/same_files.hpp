// What every rank reads and writes for itself lies at one path, and is one thing only if all nodes have the
// same there: an old copy on the disk of one of them, or a share that is not mounted there, is another. All
// ranks together, one thread each.
#pragma once

#include <string>

#include "base/time.hpp"
#include "comm/communicator.hpp"

namespace tutti::train {

// `mine` tells what this rank has at `path`: two that differ have different things there. Throws Failure, on
// all ranks alike, with the names of those that have another one than rank 0.
void require_same(comm::Communicator& world, const std::string& what, const std::string& path,
                  const std::string& mine);

// Each rank looks in the run's folder for the owner's file that rank 0, whose `token` it is, has put there.
// Throws Failure, on all ranks alike, with the names of those that have not seen it within `patience`.
void require_shared(comm::Communicator& world, const std::string& run, const std::string& token,
                    Duration patience);

}  // namespace tutti::train
