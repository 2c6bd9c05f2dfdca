// Which mesh a run gets. The rule, until a planner measures:
//
//   A mesh that the recipe names is taken. With fewer ranks than that, it keeps its slices and stages, and
//   has fewer replicas. Otherwise: the fewest slices × stages with which the model fits into memory, of those
//   the fewest stages, with no more slices than ranks on a node; the rest are replicas.
//
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "learn/recipe/memory.hpp"

namespace tutti::recipe {

struct Ground {
  int ranks = 1;
  int ranks_of_node = 1;
  Place place = Place::host;
  std::int64_t memory = 0;  // of a rank; 0: not known, anything fits
};

// The most memory that each of so many ranks can have on these hosts, however they are spread; 0: one of the
// hosts does not say what it has, or there is none.
std::int64_t memory_of_each(const std::vector<std::int64_t>& hosts, int ranks);

Result<plan::Mesh> choose_mesh(const Recipe& recipe, const model::Shape& shape, const Ground& ground);

// The numbers of ranks up to `ground.ranks` with which the run can go on, the largest first.
std::vector<int> rank_counts(const Recipe& recipe, const model::Shape& shape, const Ground& ground);

}  // namespace tutti::recipe
