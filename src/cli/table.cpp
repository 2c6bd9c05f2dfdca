#include <array>

#include "cli/commands.hpp"

namespace tutti::cli {

std::span<const CommandEntry> commands() {
  static const std::array table{
      CommandEntry{"help", "[COMMAND]", "Explains tutti, or one command.", make_help},
      CommandEntry{"version", "", "Tells which tutti this is.", make_version},
  };
  return table;
}

}  // namespace tutti::cli
