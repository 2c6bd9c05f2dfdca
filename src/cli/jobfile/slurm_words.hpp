// What people who know Slurm type, and which words of tutti do it. Pure functions: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/config/flags.hpp"

namespace tutti::jobfile {

// Advice for a command of Slurm's, "" for any other word.
std::string slurm_command_hint(std::string_view command);

// The words of `tutti run` for a flag of Slurm's, with its dashes; "" for one that has none.
std::string slurm_flag_hint(std::string_view flag);

// Advice for the flags of `srun` and `sbatch` that `tutti run` calls something else.
void declare_slurm_hints(config::Flags& flags);

}  // namespace tutti::jobfile
