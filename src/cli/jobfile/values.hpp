// The words that a user writes as values of a job, each checked and turned into what the cluster counts in.
// Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/flags.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "control/cluster/limits.hpp"
#include "control/cluster/model.hpp"

namespace tutti::jobfile {

// What the API checks too.
using cluster::array_index_max;
using cluster::command_word_bytes_max;
using cluster::cpus_per_rank_max;
using cluster::dependencies_max;
using cluster::grace_max;
using cluster::path_bytes_max;
using cluster::time_limit_max;
constexpr std::int64_t gpus_per_rank_max = 1000;
constexpr Bytes memory_max = cluster::memory_per_rank_max;
constexpr Bytes memory_min = mib(1);  // less is a forgotten unit
constexpr std::size_t name_bytes_max = cluster::job_name_bytes_max;

// The elements of an array, ascending; none: no array.
struct ArrayRange {
  std::vector<std::int32_t> indices;
  std::int32_t limit = 0;  // how many run at once; 0: all

  friend bool operator==(const ArrayRange&, const ArrayRange&) = default;
};

// Digits only, within the range.
Result<std::int64_t> parse_count(std::string_view text, config::Range range);
// "8", "4:16" (each number from 16 down to 4), "16,8,4": the numbers of ranks that a gang can run with,
// descending.
Result<std::vector<std::int32_t>> parse_rank_counts(std::string_view text);
// "2", "0.25": in thousandths of a GPU; more than one GPU are whole ones.
Result<std::int32_t> parse_gpu_share(std::string_view text);
// "2h", or Slurm's forms: MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS. 0 is no limit.
Result<Duration> parse_time_limit(std::string_view text);
Result<Duration> parse_grace(std::string_view text);
Result<Bytes> parse_memory(std::string_view text);
// "0-99", "0-99%8", "0-10:2", "1,3,5".
Result<ArrayRange> parse_array(std::string_view text);
Result<cluster::JobId> parse_job(std::string_view text);

// Letters, digits, . _ - and blanks.
Result<std::string> parse_name(std::string_view text);

// "H100" or "A100,H100": any of them; the way a shape has it, "A100|H100".
Result<std::string> parse_models(std::string_view text);
// The same without blanks.
Result<std::string> parse_word(std::string_view text);
// Such words joined by '/': research/vision is a part of research.
Result<std::string> parse_queue(std::string_view text);
Result<std::string> parse_path(std::string_view text);
// One K=V.
Result<> check_env(std::string_view entry);

// The nearest thing to `text` that is a name.
std::string as_name(std::string_view text);

}  // namespace tutti::jobfile
