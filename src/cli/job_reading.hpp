// Jobs as the commands about them read them from the API. Main thread.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "base/result.hpp"
#include "cli/cluster.hpp"

namespace tutti::cli {

// "" if it is not there.
std::string text_of(const nlohmann::json& object, const char* key);

// Its state, or "ending" while its ranks have their grace period.
std::string shown_state(const nlohmann::json& job);

// "8", or "4 of 8" where the attempt has fewer than are wanted.
std::string rank_summary(const nlohmann::json& job);

// Of the reason of a job what fits into a row: the first line, without the words that announce the others.
std::string reason_in_a_row(const std::string& reason);

// Page after page, newest first. `more`: there are others beyond the limit.
Result<nlohmann::json> read_jobs(Cluster& cluster, const std::string& query, std::int64_t limit,
                                 bool* more = nullptr);

// The elements of the array that the job belongs to, in order.
Result<nlohmann::json> read_array(Cluster& cluster, const std::string& job);

// Is it the id of a job, and not the name of a service?
bool names_job(const std::string& word);

// The id of "7", or of "7[3]", which is how `tutti jobs` shows element 3 of the array of job 7.
Result<std::string> job_id(Cluster& cluster, const std::string& word);

}  // namespace tutti::cli
