#include <cstdio>

#include "cli/commands.hpp"
#include "cli/dispatch.hpp"

namespace tutti::cli {
namespace {

class Help final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("COMMAND", command_, "the command to explain", false);
  }

  Result<int> run() override {
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
