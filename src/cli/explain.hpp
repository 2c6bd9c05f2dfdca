// Why a job waits, for people. Main thread.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tutti::cli {

// An ExplainView of the API in a few lines; of a job without an id it says what would happen.
std::string explanation_text(const nlohmann::json& view);

// "14:20", "now", or "unknown: jobs 12, 15 run without a time limit".
std::string expected_text(const nlohmann::json& view);

}  // namespace tutti::cli
