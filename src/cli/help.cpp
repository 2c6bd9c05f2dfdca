#include <cstdio>

#include "cli/commands.hpp"
#include "cli/dispatch.hpp"

namespace tutti::cli {
namespace {

constexpr const char* environment_text = R"(What tutti reads from its environment:

  TUTTI_HOME        the folder of the local cluster: `tutti up` keeps it there (default: ~/.tutti)
  TUTTI_ADDR        HOST:PORT of a controller (default: that of the local cluster)
  TUTTI_TOKEN_FILE  the file with the token for it (default: the one that `tutti login` has kept for its
                    address, else TUTTI_HOME/controller/admin.token)
  TUTTI_CA_FILE     speak TLS, and trust this certificate authority (PEM); without TLS only a controller on
                    this machine is spoken to

What a rank finds in its own, besides what --env gives it:

  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR, MASTER_PORT
                        who it is and where the others are, as PyTorch expects it
  CUDA_VISIBLE_DEVICES  its GPUs
  TUTTI_CLUSTER, TUTTI_JOB, TUTTI_ATTEMPT, TUTTI_NODE
                        the id of its cluster, its job, which start of it this is (0, 1, 2 ...), and the name
                        of its node
  TUTTI_WORLD_SECRET    in a gang: what its ranks have and nobody else, for tutti's own collectives
  TUTTI_RANKS_WANTED    as many ranks as the job would like to have
  TUTTI_ARRAY_INDEX     of an element of an array
  TUTTI_CHECKPOINT_DIR  a folder that later attempts of the job see too, if the nodes share it
  TUTTI_SECRETS         the folder, in memory, of the secrets that the job asked for, a file for each
  TUTTI_PROGRESS_FILE   the first line that it writes there stands in `tutti show`
  SLURM_PROCID and others, if the job is a script with #SBATCH lines
)";

class Help final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("COMMAND", command_,
                   "the command to explain, or environment: the variables that tutti and its ranks see",
                   false);
  }

  Result<int> run() override {
    if (command_ == "environment") {
      std::fputs(environment_text, stdout);
      return exit_success;
    }
    auto text = command_.empty() ? Result<std::string>(overview()) : help_text(command_);
    if (!text) return std::move(text).error();
    std::fputs(text->c_str(), stdout);
    return exit_success;
  }

 private:
  std::string command_;
};

}  // namespace

std::unique_ptr<Command> make_help() { return std::make_unique<Help>(); }

}  // namespace tutti::cli
