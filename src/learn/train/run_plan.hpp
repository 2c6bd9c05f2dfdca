// What the ranks of a run agree on before they build anything: the recipe, the model, the mesh. Rank 0
// decides, from what was submitted and from where all ranks are, and tells the others: ranks that decided
// each for themselves could decide differently. All ranks together, one thread each.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "learn/model/shape.hpp"
#include "learn/plan/mesh.hpp"
#include "learn/recipe/submission.hpp"
#include "learn/train/trainer.hpp"

namespace tutti::train {

struct RunPlan {
  recipe::Recipe recipe;  // its precision is named
  std::string config;
  model::Shape shape;
  plan::Mesh mesh;
};

// What `tutti train` wrote for this job, or recipe.json and config.json of the folder. Throws Failure.
recipe::Submission read_submission(const RunOptions& options);

// The newer one whose claim it was told to pass over, by somebody who knew of it; mostly nobody.
std::optional<checkpoint::Fence> passed_over_by(const recipe::Submission& submission);

// `submission` is rank 0's, whose folder it is, and which claims the checkpoints; the others give none.
// Throws Failure.
RunPlan agree(const RunOptions& options, comm::Communicator& world, const recipe::Submission* submission);

// How many ranks each node has, in the order of the ranks.
std::vector<int> ranks_of_nodes(const comm::Communicator& world);

}  // namespace tutti::train
