// Where the ranks of a run meet after each has been busy with a disk. All ranks together, one thread each.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "comm/communicator.hpp"

namespace tutti::train {

// Disks of a busy fleet are slow, and the slowest rank counts: far longer than between operations of a step.
constexpr Duration meeting_deadline = std::chrono::minutes(30);

// Every rank's text, on every rank.
Result<std::vector<std::string>> tell_all(comm::Communicator& world, const std::string& mine);

}  // namespace tutti::train
