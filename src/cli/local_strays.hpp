// The parts and ranks of a local cluster whose home was removed under them: they run on, and nothing there
// tells of them any more. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

#include "node/rank/rank_folder.hpp"

namespace tutti::cli {

struct Stray {
  std::string part;  // controller, agent or shim
  rank::ShimProcess process;
};

// Of this home, by the words that they were started with, and of this user and namespaces; only those that
// hold files of it which were removed. What a home of the same name elsewhere has, or one whose name only
// begins so, is none of it.
std::vector<Stray> strays_of(const std::string& home);

}  // namespace tutti::cli
