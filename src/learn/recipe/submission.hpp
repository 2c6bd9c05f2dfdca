// What `tutti train` hands to the ranks of one job: a file of its own in the run's folder, so that two that
// are submitted at the same time do not train each other's recipe. Values, any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "learn/recipe/recipe.hpp"

namespace tutti::recipe {

struct Submission {
  Recipe recipe;
  std::string config;         // a config.json: the model
  bool from_scratch = false;  // the checkpoints that are there are moved away before the first step
  bool take_over = false;     // the folder is taken from whoever trains in it
  std::string claim{};        // of the checkpoints, as it stood when this was submitted: it was known of
};

std::string json_of(const Submission& submission);
Result<Submission> parse_submission(std::string_view json);

}  // namespace tutti::recipe
