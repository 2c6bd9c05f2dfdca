// How ranks, attempts and jobs are called: as folders below the agent's own, and as people know them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::agent {

// The rank whose folder has this name.
std::optional<keeper::RankKey> parse_key(const std::string& name);
std::string attempt_name(cluster::JobId job, std::int32_t attempt);
// As what the attempt has on the node is called, its shipped folder and its places: jobs of two clusters have
// the same numbers, and what is of the one is not to be met, or removed, by the other.
std::string place_name(cluster::JobId job, std::int32_t attempt, const std::string& cluster);

// What in a folder is called as a rank is. Of what kind it is says the folder: the entry itself may be on a
// disk that does not answer, and is asked only where the folder does not know.
struct RankEntry {
  keeper::RankKey key;
  std::string path;
  bool is_folder = false;
  bool is_link = false;
};
Result<std::vector<RankEntry>> rank_entries(const std::string& ranks_folder, const std::string& prefix = "");

// As the work of a lane for one of them is called.
std::string owner_of(const keeper::RankKey& key);
std::string owner_of(cluster::JobId job);

}  // namespace tutti::agent
