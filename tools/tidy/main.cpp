// tidy: proves the rules of the house on the whole tree. Prints `file:line: rule: what`, exits with 1 if it
// found any.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "tidy/rules.hpp"

namespace {

using tutti::tidy::Finding;

void append(std::vector<Finding>& all, std::vector<Finding> more) {
  all.insert(all.end(), more.begin(), more.end());
}

// The libraries of the pure modules must have been built; workers' modules are not pure.
tutti::Result<> append_symbols(std::vector<Finding>& all, const std::vector<tutti::tidy::Module>& modules,
                               const std::string& build) {
  for (const auto& module : modules) {
    if (!tutti::tidy::is_pure(module)) continue;
    std::string name = module.name;
    std::replace(name.begin(), name.end(), '/', '_');
    const std::string archive = build + "/lib/libtutti_" + name + ".a";
    if (!std::filesystem::exists(archive)) continue;  // headers only
    auto found = tutti::tidy::check_symbols(module, archive);
    if (!found) return std::move(found).error();
    append(all, std::move(*found));
  }
  return {};
}

// Asks the programs themselves: `tutti help COMMAND`, `./dev help`.
tutti::tidy::HelpOf ask_programs(const std::string& root, const std::string& build) {
  return [root, build](const std::string& program, const std::string& command) -> std::optional<std::string> {
    const bool safe = command.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string::npos;
    if (!safe) return std::nullopt;
    if (program == "tutti") {
      if (command == "--version" || command == "--help") return "";
      return tutti::tidy::output_of(build + "/bin/tutti help " + command + " 2>/dev/null")
                     .value_or("")
                     .empty()
                 ? std::nullopt
                 : std::optional(*tutti::tidy::output_of(build + "/bin/tutti help " + command));
    }
    if (program == "tutti-worker" && !std::filesystem::exists(build + "/bin/tutti-worker")) return "";
    const std::string ask =
        program == "./dev" ? "cd '" + root + "' && ./dev help" : build + "/bin/tutti-worker --help";
    const std::string text = tutti::tidy::output_of(ask).value_or("");
    return text.find(" " + command) == std::string::npos ? std::nullopt : std::optional(text);
  };
}

tutti::Result<std::vector<Finding>> check_all(const std::string& root, const std::string& build) {
  auto tree = tutti::tidy::read_tree(root);
  if (!tree) return std::move(tree).error();
  const auto modules = tutti::tidy::read_modules(*tree);
  std::vector<Finding> all = tutti::tidy::check_layers(modules);
  append(all, tutti::tidy::check_rooms(*tree, tutti::tidy::read_rooms(*tree), modules));
  append(all, tutti::tidy::check_includes(*tree, modules));
  append(all, tutti::tidy::check_borders(*tree, modules));
  append(all, tutti::tidy::check_unordered(*tree, modules));
  append(all, tutti::tidy::check_dead_files(*tree, modules));
  append(all, tutti::tidy::check_long_files(*tree));
  append(all, tutti::tidy::check_commented_code(*tree));
  append(all, tutti::tidy::check_home_paths(*tree));
  append(all, tutti::tidy::check_commands(*tree, ask_programs(root, build)));
  append(all, tutti::tidy::check_faults(*tree));
  append(all, tutti::tidy::check_prefix(*tree));
  const std::vector<tutti::tidy::RouteTable> tables{{"docs/api.md", "tutti api --markdown"},
                                                    {"docs/serving.md", "tutti api engine --markdown"},
                                                    {"docs/serving.md", "tutti api script --markdown"},
                                                    {"docs/serving.md", "tutti api gateway --markdown"}};
  for (const tutti::tidy::RouteTable& table : tables) {
    const auto routes = tutti::tidy::output_of(build + "/bin/" + table.command);
    if (!routes) return routes.error();
    append(all, tutti::tidy::check_route_table(*tree, table, *routes));
  }
  if (auto symbols = append_symbols(all, modules, build); !symbols) return std::move(symbols).error();
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() != 4 || words[0] != "--root" || words[2] != "--build") {
    std::fputs("usage: tidy --root REPOSITORY --build BUILD_FOLDER\n", stderr);
    return 2;
  }
  const auto findings = check_all(words[1], words[3]);
  if (!findings) {
    std::fprintf(stderr, "tidy: %s\n", findings.error().text().c_str());
    return 2;
  }
  for (const Finding& finding : *findings) {
    std::printf("%s:%d: %s: %s\n", finding.file.c_str(), finding.line, finding.rule.c_str(),
                finding.message.c_str());
  }
  std::printf("tidy: %zu finding(s)\n", findings->size());
  return findings->empty() ? 0 : 1;
}
