// The #SBATCH lines of a script, as a draft. Slurm counts by node and task, tutti by rank: a task is a rank,
// and what is asked for a node is divided among its ranks. Pure: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "cli/jobfile/job_flags.hpp"

namespace tutti::jobfile {

class SlurmReader {
 public:
  // Both must outlive the reader.
  SlurmReader(std::string script, Draft& draft, std::vector<std::string>& warnings);

  // The words of one line.
  Result<> read(int line, std::span<const std::string> words);
  // Behind the last line: what the counts of all lines mean together.
  Result<> finish();

  // A number of GPUs with the place that asks for it.
  struct Gpus {
    std::int64_t count = 0;
    std::string place;
  };
  // What cannot go into the draft before all lines are read; zero: not given.
  struct Counts {
    std::int64_t nodes = 0;
    std::int64_t tasks = 0;
    std::int64_t tasks_per_node = 0;
    std::optional<Gpus> gpus;
    std::optional<Gpus> gpus_per_node;
    std::optional<Gpus> gpus_per_task;
    Bytes memory_per_node;
    std::string place;  // of the option that is being read: "train.sh:3: --gres"
  };

 private:
  struct Layout {
    std::int64_t ranks = 1;
    std::int64_t ranks_per_node = 1;
    bool even = true;  // each node has that many
  };
  Layout layout() const;
  Result<std::optional<std::int64_t>> gpus_per_rank(const Layout& layout) const;

  std::string script_;
  Draft& draft_;
  std::vector<std::string>& warnings_;
  Counts counts_;
};

}  // namespace tutti::jobfile
