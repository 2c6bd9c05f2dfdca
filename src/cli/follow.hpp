// Following a job from the command line: its logs as they come, its end, Ctrl-C.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/cluster.hpp"

namespace tutti::cli {

struct FollowOptions {
  std::string job;
  bool logs = true;
  std::int64_t rank = -1;
  std::int64_t tail_lines = 0;
  bool prefix = true;    // "[rank] " before each line
  std::string label;     // before the rank: "3." for "[3.0] "
  bool cancels = false;  // the second Ctrl-C cancels the job
  bool says_end = true;  // why it failed, on stderr
  bool raw = false;      // a terminal, too, gets every byte of the log as it was printed
  // On a terminal, lines that begin so take the place of one another; empty: none do.
  std::string live_line = {};
};

// Until the job ends; its exit code. A controller that goes away is waited for.
Result<int> follow(Cluster& cluster, const FollowOptions& options);

// The logs as they are now.
Result<int> print_logs(Cluster& cluster, const FollowOptions& options);

}  // namespace tutti::cli
