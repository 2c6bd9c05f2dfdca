// A shell script with #TUTTI and #SBATCH lines at its top; job_file.hpp says what they mean. Pure: any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/jobfile/job_file.hpp"

namespace tutti::jobfile {

constexpr std::size_t flag_lines_max = 1000;

Result<JobFile> parse_script(std::string_view text, std::string_view name);

// Words as a shell would split them: quotes and backslashes hold a word together, # in front of a word ends
// the line.
Result<std::vector<std::string>> split_words(std::string_view line);

}  // namespace tutti::jobfile
