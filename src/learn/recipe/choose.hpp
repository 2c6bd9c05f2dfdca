// Which mesh a run gets. The rule, until a planner measures:
//
//   A mesh that the recipe names is taken. With fewer ranks than that, it keeps its slices and stages, and
//   has fewer replicas. Otherwise: the fewest slices × stages with which the model fits into memory, of those
//   the fewest stages; the rest are replicas. The slices of a layer lie on one node, always: on a node there
//   are whole groups of them or none.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "learn/recipe/memory.hpp"

namespace tutti::recipe {

struct Ground {
  int ranks = 1;
  // How many ranks each node has, in the order of the ranks, where they have their places; where they are yet
  // to get them, how many each node of the cluster could take. None: nothing is known of nodes.
  std::vector<int> nodes;
  bool placed = false;
  Place place = Place::host;
  std::int64_t memory = 0;       // of a rank; 0: not known, anything fits
  std::int64_t host_memory = 0;  // of a rank on a GPU, for the copy of a checkpoint; 0: the same
};

// What to ask of the placement, so that slices lie together: so many nodes with exactly so many ranks each.
// 0: as it comes.
struct Arrangement {
  int nodes = 0;
  int ranks_per_node = 0;

  friend bool operator==(const Arrangement&, const Arrangement&) = default;
};
// How groups of so many slices can lie on the ground; nothing if they cannot.
std::optional<Arrangement> arrange(const Ground& ground, int slices);

// The most memory that each of so many ranks can have on these hosts, however they are spread; 0: one of the
// hosts does not say what it has, or there is none.
std::int64_t memory_of_each(const std::vector<std::int64_t>& hosts, int ranks);

Result<plan::Mesh> choose_mesh(const Recipe& recipe, const model::Shape& shape, const Ground& ground);

// The numbers of ranks up to `ground.ranks` with which the run can go on, the largest first, and which all
// are placed as the first one is.
std::vector<int> rank_counts(const Recipe& recipe, const model::Shape& shape, const Ground& ground);

}  // namespace tutti::recipe
