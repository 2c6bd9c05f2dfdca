// How ranks, attempts and jobs are called: as folders below the agent's own, and as people know them.
#pragma once

#include <optional>
#include <string>

#include "node/keeper/rank_key.hpp"

namespace tutti::agent {

// The rank whose folder has this name.
std::optional<keeper::RankKey> parse_key(const std::string& name);
std::string attempt_name(cluster::JobId job, std::int32_t attempt);

// As the work of a lane for one of them is called.
std::string owner_of(const keeper::RankKey& key);
std::string owner_of(cluster::JobId job);

}  // namespace tutti::agent
