// The rules of the house, each a function from the tree to what breaks it. tidy_test.cpp plants a violation
// of each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tidy/tree.hpp"

namespace tutti::tidy {

using Findings = std::vector<Finding>;

// layers.cpp: the architecture that docs/architecture.md draws.
Findings check_layers(const std::vector<Module>& modules);
Findings check_includes(const Tree& tree, const std::vector<Module>& modules);
Findings check_borders(const Tree& tree, const std::vector<Module>& modules);

// rooms.cpp: src/CMakeLists.txt says which room may use which; each has a page of its own.
Findings check_rooms(const Tree& tree, const std::vector<Room>& rooms, const std::vector<Module>& modules);

// purity.cpp: what makes a module deterministic.
bool is_pure(const Module& module);
Findings check_unordered(const Tree& tree, const std::vector<Module>& modules);
// `archive` is the built library of a pure module.
Result<Findings> check_symbols(const Module& module, const std::string& archive);

// hygiene.cpp: what every file owes to its reader.
Findings check_dead_files(const Tree& tree, const std::vector<Module>& modules);
Findings check_long_files(const Tree& tree);
Findings check_commented_code(const Tree& tree);
Findings check_home_paths(const Tree& tree);

// commands.cpp: the documents show only commands that exist.
// Returns the help text of a program's command ("tutti", "run"), nothing if there is no such command.
using HelpOf =
    std::function<std::optional<std::string>(const std::string& program, const std::string& command)>;
Findings check_commands(const Tree& tree, const HelpOf& help_of);

// faults.cpp: each promise about a fault names tests that there are.
Findings check_faults(const Tree& tree);

// routes.cpp: tables say what the controller and the engines answer, and the documents show them.
Findings check_prefix(const Tree& tree);
// A document that shows what a command of ours prints.
struct RouteTable {
  std::string document;
  std::string command;
};
// `markdown` is what the command prints.
Findings check_route_table(const Tree& tree, const RouteTable& table, std::string_view markdown);

}  // namespace tutti::tidy
