// The folder of a local cluster, and whether it is one: `tutti up` leaves a mark in a folder that it takes
// for its own, and nothing in a folder without one is ever removed. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::cli {

enum class HomeKind {
  empty,    // or not there yet
  own,      // of a local cluster
  foreign,  // somebody keeps other things there
};

Result<HomeKind> kind_of_home(const std::string& home);

// Somebody has started or ended a cluster there, or is about to: only under the lock it shows what there is.
bool was_locked(const std::string& home);

// All that tells what runs of its cluster can be read, as far as it is there: else nobody knows.
Result<> check_readable(const std::string& home);

// From now on it is a local cluster's, also after a crash. The mark tells which one by an id that is made
// once, and where it is.
Result<> mark_home(const std::string& home);

// An error if the folder was copied and the one that it was copied from is still there: both would be the
// same cluster, with the same nodes and numbers of jobs. One that was moved is fine.
Result<> check_no_copy(const std::string& home);

// All that a local cluster leaves there, the mark last. What could not be removed, each with the reason.
std::vector<std::string> clean_home(const std::string& home);

}  // namespace tutti::cli
