// A training recipe from the user's file and from `--set`. Main thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/recipe/recipe.hpp"

namespace tutti::cli {

// The file's keys over the defaults, then each "key=value" in turn. An unknown key is an error with the
// nearest one. Paths become absolute, as the ranks run elsewhere.
Result<recipe::Recipe> read_recipe(const std::string& path, const std::vector<std::string>& settings);

// Every key with its default and its meaning, for people.
std::string describe_recipe_keys();

}  // namespace tutti::cli
