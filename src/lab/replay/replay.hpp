// A trace of jobs on a fleet of machines, in virtual time: drives the same state machine and the same
// policies as the controller does. One seed, one history. Owns nothing outside itself: any thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/sched/sched.hpp"
#include "lab/replay/fleet.hpp"
#include "lab/replay/trace.hpp"

namespace tutti::replay {

// A node that is down for a while.
struct Failure {
  Duration at{};
  std::string node;
  Duration down{};
};
// Columns at_s (after the submission of the first job), node, down_s.
Result<std::vector<Failure>> read_failures(const std::string& file);

struct ReplayOptions {
  const sched::Policy* policy = nullptr;
  Duration restart_cost{};            // time that a gang needs to be as far as its checkpoint again
  Duration checkpoint_every = 30min;  // what runs on a node that fails loses what it did since
  std::vector<Failure> failures;
  std::function<void(std::size_t done, std::size_t all)> progress;
};

// A stretch of one job on the machines.
struct Stretch {
  Duration from{};
  Duration to{};
};

struct ReplayedJob {
  std::string name;
  std::int32_t gpus = 0;
  Duration submit{};
  Duration end{};
  Duration duration{};  // as the trace has it
  std::vector<Stretch> ran;
};

struct Point {
  Duration at{};
  double gpus_busy = 0;
  std::size_t queued = 0;
};

struct Replayed {
  std::string policy;
  std::int64_t gpus = 0;  // of the fleet
  std::vector<ReplayedJob> jobs;
  std::vector<Point> points;  // thinned out: at most some thousands
  std::size_t preemptions = 0;
  std::size_t node_failures = 0;
  double lost_gpu_hours = 0;  // work done twice, and restarts

  double jct_mean_s() const;
  double jct_median_s() const;
  double jct_p99_s() const;  // of 400 jobs the 397th
  double makespan_s() const;
  double queue_mean_s() const;  // all the time that a job waited
  double utilisation() const;   // 0 to 1
};

// Fails if a job of the trace can never run on the fleet.
Result<Replayed> replay(const Fleet& fleet, const std::vector<TraceJob>& trace, const ReplayOptions& options);

std::string to_json(const Replayed& replayed);
// One page without anything from elsewhere: utilisation, queue and the largest jobs over time.
std::string to_html(const Replayed& replayed);

}  // namespace tutti::replay
