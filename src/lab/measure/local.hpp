// Ranks on this machine without a cluster: processes of our own, forked, which end with this one. Called from
// a program that has no other threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "comm/communicator.hpp"

namespace tutti::measure {

// What a rank says: lines to the one who started it, or an error.
using Say = std::function<void(const std::string& line)>;
using RankBody = std::function<Result<>(comm::Communicator& world, const Say& say)>;
// Whose line it is, and the line.
using Hear = std::function<void(int rank, const std::string& line)>;

struct LocalRanks {
  int count = 2;
  comm::Transport transport = comm::Transport::automatic;
  Duration deadline = 5s;  // of each operation
};

// Runs `body` on so many ranks and returns when all have ended; the first error counts.
Result<> run_local(const LocalRanks& ranks, const RankBody& body, const Hear& hear);

// The rank `victim` is killed with -9 in the middle of all-reduces of this size.
struct Killed {
  double error_ms = 0;  // from the kill to the error on the last of the others
  std::string error;
};
Result<Killed> measure_kill(const LocalRanks& ranks, int victim, std::size_t bytes);

}  // namespace tutti::measure
