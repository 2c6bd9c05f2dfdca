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
  std::int64_t tail_lines = -1;  // -1: all
  bool prefix = true;            // "[rank] " before each line
  std::string label;             // before the rank: "3." for "[3.0] "
  bool cancels = false;          // the second Ctrl-C cancels the job
  bool tells_wait = false;       // why the job waits, on stderr
  bool says_end = true;          // why it failed, on stderr
  bool only_logs = false;        // the exit code says whether they are complete, not how the job ended
  bool raw = false;              // a terminal, too, gets every byte of the log as it was printed
  // On a terminal, lines that begin so take the place of one another; empty: none do.
  std::string live_line = {};
  bool was_there = false;  // the controller was, a moment ago: if it is not now, it is waited for
  Duration reconnect_for = std::chrono::minutes(10);  // after the controller was last heard
  // That nothing is heard is told: of the first answer, and later, when the controller speaks at least every
  // five seconds (`alive`).
  Duration first_silence_told = answer_told_after;
  Duration silence_told = 15s;
};

// Until the job ends; its exit code. A controller that goes away is waited for. Where a part of the logs is
// missing, a note on stderr says so, and the exit code of a job that succeeded is 1.
Result<int> follow(Cluster& cluster, const FollowOptions& options);

// The logs as they are now; 1 if a part of them is missing.
Result<int> print_logs(Cluster& cluster, const FollowOptions& options);

}  // namespace tutti::cli
