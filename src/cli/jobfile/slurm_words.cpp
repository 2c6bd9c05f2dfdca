#include "cli/jobfile/slurm_words.hpp"

#include <array>

namespace tutti::jobfile {
namespace {

struct SlurmCommand {
  std::string_view name;
  std::string_view advice;
};

constexpr std::array slurm_commands{
    SlurmCommand{"squeue", "`tutti jobs` lists jobs"},
    SlurmCommand{"sacct", "`tutti jobs --all` lists jobs, finished ones too"},
    SlurmCommand{"sbatch", "`tutti submit SCRIPT` takes scripts with #SBATCH lines"},
    SlurmCommand{"srun", "`tutti run -- COMMAND` runs a command and streams its logs"},
    SlurmCommand{"salloc", "`tutti run -- COMMAND` runs a command when there is room for it"},
    SlurmCommand{"scancel", "`tutti cancel JOB` ends jobs"},
    SlurmCommand{"sinfo", "`tutti nodes` lists nodes, `tutti status` sums them up"},
    SlurmCommand{"scontrol",
                 "`tutti show JOB` shows a job, `tutti drain NODE` and `tutti resume NODE` change nodes"},
    SlurmCommand{"sshare", "`tutti queues` shows who uses what"},
};

struct SlurmFlag {
  const char* name;  // with its dashes
  const char* ours;
};

constexpr std::array slurm_flags{
    SlurmFlag{"-N", "--nodes N"},
    SlurmFlag{"-n", "--ranks N"},
    SlurmFlag{"--ntasks", "--ranks N"},
    SlurmFlag{"--ntasks-per-node", "--ranks-per-node N"},
    SlurmFlag{"-c", "--cpus-per-rank N"},
    SlurmFlag{"--cpus-per-task", "--cpus-per-rank N"},
    SlurmFlag{"-G", "--gpus N (a rank on each), or --gpus-per-rank N"},
    SlurmFlag{"--gres", "--gpus N (a rank on each), or --gpus-per-rank N"},
    SlurmFlag{"--gpus-per-task", "--gpus-per-rank N"},
    SlurmFlag{"--gpus-per-node", "--gpus-per-rank N and --ranks-per-node N"},
    SlurmFlag{"--mem", "--memory-per-rank SIZE"},
    SlurmFlag{"--mem-per-cpu", "--memory-per-rank SIZE"},
    SlurmFlag{"-t", "--time TIME"},
    SlurmFlag{"-p", "--queue QUEUE"},
    SlurmFlag{"--partition", "--queue QUEUE"},
    SlurmFlag{"-q", "--queue QUEUE and --priority N"},
    SlurmFlag{"--qos", "--queue QUEUE and --priority N"},
    SlurmFlag{"-A", "--queue QUEUE"},
    SlurmFlag{"--account", "--queue QUEUE"},
    SlurmFlag{"-J", "--name NAME"},
    SlurmFlag{"--job-name", "--name NAME"},
    SlurmFlag{"-o", "--output FILE"},
    SlurmFlag{"-e", "--output FILE, which gets both"},
    SlurmFlag{"--error", "--output FILE, which gets both"},
    SlurmFlag{"-a", "--array RANGE"},
    SlurmFlag{"-d", "--after JOB or --after-success JOB"},
    SlurmFlag{"--dependency", "--after JOB or --after-success JOB"},
    SlurmFlag{"-D", "--workdir DIR"},
    SlurmFlag{"--chdir", "--workdir DIR"},
    SlurmFlag{"--export", "--env NAME=VALUE, or --env NAME"},
    SlurmFlag{"-C", "--gpu-model MODEL, --gpu-memory SIZE or --within PART"},
    SlurmFlag{"--constraint", "--gpu-model MODEL, --gpu-memory SIZE or --within PART"},
    SlurmFlag{"--requeue", "--restarts N and --restart-on-failure N"},
    SlurmFlag{"--no-requeue", "--restarts 0"},
};

}  // namespace

std::string slurm_command_hint(std::string_view command) {
  for (const SlurmCommand& known : slurm_commands) {
    if (known.name == command) return std::string(known.advice);
  }
  return "";
}

std::string slurm_flag_hint(std::string_view flag) {
  for (const SlurmFlag& known : slurm_flags) {
    if (known.name == flag) return known.ours;
  }
  return "";
}

void declare_slurm_hints(config::Flags& flags) {
  for (const SlurmFlag& flag : slurm_flags) flags.add_hint(flag.name, "here it is " + std::string(flag.ours));
}

}  // namespace tutti::jobfile
