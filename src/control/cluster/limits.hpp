// How much one job may ask for, whoever asks: the command line and the API check with the same function.
// Beyond these a number or a text is a mistake, or an attack on those who would have to carry it around. Pure
// functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"

namespace tutti::cluster {

struct JobSpec;

constexpr std::size_t job_name_bytes_max = 128;
constexpr std::size_t user_bytes_max = 128;
constexpr std::size_t path_bytes_max = 4095;
constexpr std::size_t gpu_models_bytes_max = 1024;
constexpr std::size_t manifest_hash_bytes = 64;
constexpr std::size_t env_entries_max = 1000;
constexpr std::size_t env_bytes_max = 128 << 10;
constexpr std::size_t command_words_max = 10'000;
constexpr std::size_t command_bytes_max = 1 << 20;
constexpr std::size_t command_word_bytes_max = (128 << 10) - 1;  // Linux starts no program with a longer one
constexpr std::size_t dependencies_max = 1000;
constexpr std::int32_t priority_max = 1000;  // and -1000 at least
constexpr std::int32_t restarts_max = 1000;
constexpr std::int32_t cpus_per_rank_max = 10'000;
constexpr Bytes memory_per_rank_max =
    gib(std::int64_t{64} * 1024);  // ranks_max of them still fit into 64 bits
constexpr Duration time_limit_max = std::chrono::hours(24 * 3650);
constexpr Duration grace_max = std::chrono::hours(24);
constexpr std::int32_t array_index_max = 999'999;
constexpr std::size_t submit_key_bytes_max = 64;

// How many bytes the words take, each with its end.
std::size_t bytes_of(const std::vector<std::string>& words);

Result<> check_command(const std::vector<std::string>& command);
// One K=V.
Result<> check_env_entry(std::string_view entry);
Result<> check_env(const std::vector<std::string>& entries);
// Letters, digits, '_' and '-'; "" is none.
Result<> check_submit_key(std::string_view key);

// All of a job but what only the cluster can tell: queues, other jobs, whether it can ever run.
Result<> check_limits(const JobSpec& spec);

}  // namespace tutti::cluster
