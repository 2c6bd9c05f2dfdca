#include <cstdio>

#include "base/version/version.hpp"
#include "cli/commands.hpp"

namespace tutti::cli {
namespace {

class Version final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("json", json_, "print a JSON object: version, commit");
  }

  Result<int> run() override {
    const std::string number(version());
    const std::string at(commit());
    if (json_) {
      std::printf("{\"version\":\"%s\",\"commit\":\"%s\"}\n", number.c_str(), at.c_str());
    } else {
      std::printf("tutti %s (%s)\n", number.c_str(), at.c_str());
    }
    return exit_success;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_version() { return std::make_unique<Version>(); }

}  // namespace tutti::cli
