// A job in a file, as a draft. The file is untrusted: its size, the number of its lines and every value have
// limits, and an error names file, line and key. Pure but for read_job_file: any thread.
//
// FILE.yaml, FILE.yml: the keys are the flags of `tutti run` without their dashes, and `command`: one string
// that bash runs, or a list of words.
//
// SCRIPT.sh, and any file that begins with #!: a shell script. Lines at its top, before the first command,
// hold flags:
//
//   #!/bin/bash
//   #TUTTI --ranks 16 --gpus-per-rank 1 --time 2h
//   #SBATCH --nodes=2 --ntasks-per-node=8 --gres=gpu:h100:8
//
// Where both kinds set a thing, #TUTTI holds. The text of the script travels as the command, so that nodes
// need no shared file system, and the script is what *every rank* runs. This is not how Slurm does it: there
// the script runs once, on the first node, and starts the tasks with srun. A script that calls srun gets a
// warning. #SBATCH lines without --ntasks and --ntasks-per-node mean one rank on each node, which gets all
// GPUs that were asked for there.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/jobfile/job_flags.hpp"

namespace tutti::jobfile {

constexpr std::size_t job_file_bytes_max = 1 << 20;

struct JobFile {
  Draft draft;  // of a script, the user's further ARGS belong to the end of its command
  std::vector<std::string> warnings;
  bool is_yaml = false;  // its command is whole
};

// `name` is the file's, without its folder: its ending says what the text is.
Result<JobFile> parse_job_file(std::string_view text, std::string_view name);
Result<JobFile> read_job_file(const std::filesystem::path& path);

}  // namespace tutti::jobfile
