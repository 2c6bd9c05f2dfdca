// From the words behind `tutti` to an exit code: finds the command, parses its flags, sets up the log, runs
// it and tells the user what went wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::cli {

int dispatch(const std::vector<std::string>& words);

// What `tutti help` and `tutti help COMMAND` print.
std::string overview();
Result<std::string> help_text(std::string_view command);

}  // namespace tutti::cli
