// The ranks of a local node without their agent: how `tutti down` ends them, and what they have to tell the
// next one. Used by the main thread only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::cli {

struct LocalNode {
  std::string name;
  std::string folder;  // its agent's
};

// How they end from now on is nobody's fault.
void mark_ranks_stopped(const LocalNode& node);
// The same for one whose folder may be out of sight: by what its shim holds open.
void mark_rank_stopped(const rank::ShimProcess& shim);

// kill -9 of every process of their ranks, their shims too, which are all below the folder `above`. Says what
// lives on when the time is over.
Result<> kill_ranks(const std::vector<LocalNode>& nodes, const std::string& above,
                    std::chrono::steady_clock::time_point give_up_at);

// The process is one of their ranks'.
bool is_of_their_ranks(pid_t pid, const std::vector<LocalNode>& nodes);

// The controller does not know yet how one of its ranks has ended.
bool has_untold_ranks(const LocalNode& node);

}  // namespace tutti::cli
