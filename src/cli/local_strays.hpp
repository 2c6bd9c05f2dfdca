// The parts and ranks of a local cluster whose home was removed under them, or cannot be read: they run on,
// and nothing there tells of them any more. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

#include "node/rank/rank_folder.hpp"

namespace tutti::cli {

struct Stray {
  std::string part;  // controller, agent, gateway or shim
  rank::ShimProcess process;
};

enum class HomeLoss {
  removed,     // those that hold files of it which were removed
  unreadable,  // those that `tutti up` has started there, as their logs tell, and the ranks
};

// Of this home, by the words that they were started with, and of this user and namespaces. What a home of the
// same name elsewhere has, or one whose name only begins so, is none of it.
std::vector<Stray> strays_of(const std::string& home, HomeLoss loss);

}  // namespace tutti::cli
