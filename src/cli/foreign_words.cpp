#include "cli/foreign_words.hpp"

#include <array>

namespace tutti::cli {
namespace {

struct ForeignCommand {
  std::string_view name;
  std::string_view advice;
};

constexpr std::string_view lists = "`tutti jobs` lists jobs, `tutti nodes` nodes";
constexpr std::string_view shows = "`tutti show JOB` shows a job, `tutti nodes` the nodes";
constexpr std::string_view ends = "`tutti cancel JOB` ends jobs, `tutti down` the local cluster";
constexpr std::string_view submits = "`tutti submit FILE` submits a job file or a script";
constexpr std::string_view runs =
    "`tutti run --gpus N -- COMMAND` starts a rank on each GPU, as torchrun would";

constexpr std::array foreign_commands{
    ForeignCommand{"get", lists},
    ForeignCommand{"list", lists},
    ForeignCommand{"ls", lists},
    ForeignCommand{"ps", lists},
    ForeignCommand{"describe", shows},
    ForeignCommand{"inspect", shows},
    ForeignCommand{"delete", ends},
    ForeignCommand{"kill", ends},
    ForeignCommand{"rm", ends},
    ForeignCommand{"stop", ends},
    ForeignCommand{"apply", submits},
    ForeignCommand{"create", submits},
    ForeignCommand{"start", "`tutti up` starts a local cluster, `tutti run -- COMMAND` a job"},
    ForeignCommand{"exec", "`tutti run -- COMMAND` runs a command; nothing is run inside a job that runs"},
    ForeignCommand{"cordon", "`tutti drain NODE` lets nothing new start on a node"},
    ForeignCommand{"uncordon", "`tutti resume NODE` lets jobs start on a node again"},
    ForeignCommand{"top", "`tutti status` sums the cluster up, `tutti jobs --watch` shows jobs each second"},
    ForeignCommand{"torchrun", runs},
    ForeignCommand{"mpirun", runs},
};

}  // namespace

std::string foreign_command_hint(std::string_view command) {
  for (const ForeignCommand& known : foreign_commands) {
    if (known.name == command) return std::string(known.advice);
  }
  return "";
}

}  // namespace tutti::cli
