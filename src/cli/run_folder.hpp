// The folder of a training run as `tutti train` finds it and leaves it: what would go wrong on the nodes is
// said before anything starts. Main thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "cli/cluster.hpp"
#include "learn/model/shape.hpp"
#include "learn/recipe/submission.hpp"

namespace tutti::cli {

struct RunFolderAsk {
  bool resume = false;
  bool from_scratch = false;
  bool take_over = false;
};

// Whether this model can be trained in the recipe's folder now: it is new or that of a run, nobody trains
// there, and the checkpoints that are there are the model's, and are to be gone on with or to be moved away.
Result<> check_run_folder(Cluster& cluster, const recipe::Recipe& recipe, const model::Shape& shape,
                          const RunFolderAsk& ask);

// Of its newest checkpoint whose manifest can be read: a name alone is none. None if there is none.
std::optional<std::int64_t> last_step(const std::string& run);

// Nothing was trained in the folder yet.
bool is_new_run(const std::string& run);

// A file of its own for each submission: what is submitted beside it does not change it. Its path.
Result<std::string> write_submission(const recipe::Submission& submission);
// Removes it if no job reads it: `why` the submit has failed may be that nobody knows whether it was done.
void drop_submission(const std::string& path, const Error& why);

}  // namespace tutti::cli
