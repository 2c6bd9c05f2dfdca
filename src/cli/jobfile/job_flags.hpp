// A job as a user writes it, on a command line or in a file, and what becomes of it. Plain data: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/config/flags.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "cli/jobfile/values.hpp"
#include "control/cluster/model.hpp"

namespace tutti::jobfile {

// The values of the flags; zero and empty mean "not given" where nothing else is said. A draft read from a
// file and then declared to the flags of a command line is overridden by that line; the lists grow, and of
// two values of one environment variable the later one holds.
struct Draft {
  std::string name;                       // "": after the command
  std::vector<std::int32_t> rank_counts;  // descending; none: not given
  std::int64_t ranks_per_node = 0;
  std::int64_t nodes = 0;
  std::optional<std::int32_t> gpu_share;  // per rank, in thousandths
  std::int64_t gpus = 0;                  // that many ranks of one GPU each
  std::int64_t cpus_per_rank = 0;
  Bytes memory_per_rank;
  std::string gpu_model;
  Bytes gpu_memory;
  sched::Level within = sched::Level::cluster;
  std::string queue = "default";
  std::int64_t priority = 0;
  Duration time_limit{};
  Duration grace = 10s;
  std::vector<std::string> env;
  std::vector<std::string> secrets;
  std::string sync_folder;  // as written; shipping it and putting its hash into the spec is the caller's part
  std::int64_t restarts = 3;
  std::int64_t restart_on_failure = 0;
  bool yields = false;
  ArrayRange array;
  std::vector<std::string> after;
  std::vector<std::string> after_success;
  std::string output;
  std::string workdir;

  // Not flags: the command comes from behind them or from the file. Further words of the user's go to its
  // end.
  std::vector<std::string> command;
  bool slurm_variables = false;

  // The flags are also the keys of a job file. The draft must stay in its place as long as the flags are
  // used.
  void declare(config::Flags& flags);

  // One spec, or one for each element of the array, whose `first` is left to the controller.
  Result<std::vector<cluster::JobSpec>> finish() const;
};

}  // namespace tutti::jobfile
