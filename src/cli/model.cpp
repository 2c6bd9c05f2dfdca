// `tutti model`: a rank of a model that several processes compute together.
#include "cli/commands.hpp"
#include "serve/parallel/parallel.hpp"

namespace tutti::cli {
namespace {

class ModelRank final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("MODEL", words_[0], "as the engine was given it");
    flags.add_word("OPTIONS", words_[1], "of the model and of this rank, as JSON");
  }

  Result<int> run() override {
    if (auto done = serve::parallel::host_model(words_, nullptr); !done) return std::move(done).error();
    return exit_success;
  }

 private:
  std::vector<std::string> words_{"", ""};
};

}  // namespace

std::unique_ptr<Command> make_model() { return std::make_unique<ModelRank>(); }

}  // namespace tutti::cli
