#include "cli/dispatch.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>

#include <nlohmann/json.hpp>

#include "base/log/log.hpp"
#include "base/text.hpp"
#include "base/visible.hpp"
#include "cli/command.hpp"
#include "cli/foreign_words.hpp"
#include "cli/jobfile/slurm_words.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

Result<const CommandEntry*> find_command(const std::string& name) {
  const auto table = commands();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.name == name; });
  if (found != table.end()) return &*found;
  std::vector<std::string> names;
  for (const auto& entry : table) names.push_back(entry.name);
  const bool flag = name.starts_with("-");
  const std::string what = (flag ? "unknown flag '" : "unknown command '") + name.substr(0, 64) + "'";
  if (flag) names = {"--help", "--version"};
  if (const std::string hint = jobfile::slurm_command_hint(name); !hint.empty())
    return invalid("it is a command of Slurm's").within(what).remedy(hint);
  return invalid(flag ? "only --help and --version may stand before a command" : "there is no such command")
      .within(what)
      .remedy(foreign_command_hint(name))
      .remedy(did_you_mean(name, names))
      .remedy("`tutti help` lists all commands");
}

void declare_log(config::Flags& flags, log::Options& options) {
  flags.add(
      "log-level", "LEVEL",
      [&options](std::string_view text) -> Result<> {
        auto level = log::parse_level(text);
        if (!level) return std::move(level).error();
        options.level = *level;
        return {};
      },
      "debug, info, warning (the default), error or off; the log goes to stderr");
  flags.add("log-json", options.json, "log one JSON object a line");
}

// A command with its flags declared and bound.
struct Bound {
  explicit Bound(const CommandEntry& entry)
      : command(entry.make()), flags(entry.name, entry.arguments, entry.summary) {
    command->declare(flags);
    declare_log(flags, log);
    log.part = entry.name;
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  std::unique_ptr<Command> command;
  config::Flags flags;
  log::Options log;
};

// What a library throws is told as any other failure. In a program that serves it is a broken assumption, and
// ends that with its last words.
Result<int> run_to_its_end(Command& command, const std::string& name) {
  if (command.serves()) return command.run();
  try {
    return command.run();
  } catch (const nlohmann::json::exception& why) {
    return failed(std::string("what was answered is not understood: ") + why.what())
        .within(name)
        .remedy("is it a controller of tutti that answers there, and of this version? `tutti version` tells");
  } catch (const std::filesystem::filesystem_error& why) {
    return failed(why.what()).within(name);
  } catch (const std::bad_alloc&) {
    return failed("there is not enough memory").within(name);
  }
}

Result<int> run_command(const std::vector<std::string>& words) {
  auto entry = find_command(words.front());
  if (!entry) return std::move(entry).error();
  Bound bound(**entry);
  auto parsed = bound.flags.parse(std::span(words).subspan(1));
  if (!parsed) return std::move(parsed).error();
  if (bound.flags.help_wanted()) {
    std::fputs(bound.flags.help().c_str(), stdout);
    return exit_success;
  }
  bound.log.serves = bound.command->serves();
  log::setup(bound.log);
  return run_to_its_end(*bound.command, (*entry)->name);
}

// tutti: WHAT : WHY, and below it what to do.
int report(const Error& error) {
  print_note(with_local_times(error.text()));
  if (!error.remedy().empty()) log::say("  " + visible(error.remedy()) + "\n");
  return error.code() == ErrorCode::invalid ? exit_usage : exit_failed;
}

std::vector<std::string> without_shorthands(std::vector<std::string> words) {
  if (words.empty() || words.front() == "--help" || words.front() == "-h") return {"help"};
  if (words.front() == "--version" || words.front() == "-V") words.front() = "version";
  return words;
}

int run_and_report(const std::vector<std::string>& words) {
  const auto code = run_command(without_shorthands(words));
  const auto written = flush_text();
  if (!code) return report(code.error());
  return written ? *code : report(written.error());
}

}  // namespace

std::string overview() {
  std::string text =
      "tutti makes a fleet of GPU servers behave as one computer.\n\n"
      "usage: tutti COMMAND [flags]\n\ncommands:\n";
  for (const auto& entry : commands()) {
    std::string row = "  " + entry.name;
    row.append(row.size() < 14 ? 14 - row.size() : 1, ' ');
    text += row + entry.summary.substr(0, entry.summary.find('\n')) + "\n";
  }
  return text +
         "\n`tutti help COMMAND` explains one of them, `tutti help environment` the variables. "
         "Exit codes: 0 success, 1 failed work, 2 wrong usage.\n";
}

Result<std::string> help_text(std::string_view command) {
  auto entry = find_command(std::string(command));
  if (!entry) return std::move(entry).error();
  return Bound(**entry).flags.help();
}

int dispatch(const std::vector<std::string>& words) {
  const int code = run_and_report(words);
  log::finish();
  return code;
}

}  // namespace tutti::cli
