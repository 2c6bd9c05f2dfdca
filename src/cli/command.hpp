// What `tutti COMMAND` is made of. Each command is a class that declares its flags and runs, in the file of
// its subject; table.cpp lists them. Used by the main thread only.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/config/flags.hpp"
#include "base/result.hpp"

namespace tutti::cli {

constexpr int exit_success = 0;
constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr int exit_signal_base = 128;  // and the number of a signal, as shells have it
constexpr int exit_interrupted = 130;  // 128 + SIGINT
constexpr int exit_unread = 141;       // 128 + SIGPIPE: whoever read stdout has gone

class Command {
 public:
  Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  // Declares the flags, bound to members of the command.
  virtual void declare(config::Flags& flags) = 0;
  // Whether others wait for it while it runs: its log must not keep it from them.
  virtual bool serves() const { return false; }
  // The exit code, or what to tell the user.
  virtual Result<int> run() = 0;
};

struct CommandEntry {
  std::string name;
  std::string arguments;  // as the usage line shows them
  std::string summary;    // one sentence; its first line stands in `tutti help`
  std::unique_ptr<Command> (*make)();
};

// In the order in which `tutti help` shows them.
std::span<const CommandEntry> commands();

}  // namespace tutti::cli
