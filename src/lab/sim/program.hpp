// What the ranks of simulated jobs do. It stands in the job's command, so that it goes the way of every
// command: over the API, through the store, to the agent. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/prng.hpp"
#include "base/time.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::sim {

struct Ending {
  Duration after{};
  std::int32_t exit_code = 0;
};

// A command of a random kind: most succeed, some fail, some fail a few times, some hang, some kill their
// node.
std::vector<std::string> some_program(Prng& prng);

// How this rank ends by itself; nothing if it hangs.
std::optional<Ending> ending_of(const std::vector<std::string>& command, const keeper::RankKey& key);

// When this rank takes its whole node down; nothing if it does not.
std::optional<Duration> kills_node_after(const std::vector<std::string>& command, const keeper::RankKey& key);

// When the replica that this is says that it is ready; nothing if it never does.
std::optional<Duration> ready_after(const std::vector<std::string>& command);
// A replica: a good one goes on until it is told to end, a bad one ends before it is ready.
std::vector<std::string> some_replica(Prng& prng, bool is_good);

bool is_poison(const std::vector<std::string>& command);
bool hangs(const std::vector<std::string>& command);

}  // namespace tutti::sim
