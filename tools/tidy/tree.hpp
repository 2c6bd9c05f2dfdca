// The repository as tidy sees it: text files by path, and the modules that its build declares. Plain data, so
// that a test can plant a violation in a tree of its own.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::tidy {

struct Finding {
  std::string file;
  int line = 0;
  std::string rule;
  std::string message;

  friend auto operator<=>(const Finding&, const Finding&) = default;
};

using Lines = std::vector<std::string>;

struct Tree {
  std::map<std::string, Lines> files;  // paths relative to the root, with '/'

  void plant(const std::string& path, std::string_view text);
  bool has(const std::string& path) const { return files.contains(path); }
};

// The files that git tracks or would track. Binary files are left out.
Result<Tree> read_tree(const std::string& root);

struct Module {
  std::string name;
  std::string layer;
  std::string folder;  // "src/base"
  std::vector<std::string> uses;
  std::vector<std::string> tests_use;
  bool is_for_workers = true;  // the build of the workers alone has it, too
  std::string file;            // where it is declared
  int line = 0;
};

// Every tutti_module(…) of the CMakeLists.txt files.
std::vector<Module> read_modules(const Tree& tree);

// A folder of src with the modules below it, and the rooms that these may use.
struct Room {
  std::string name;
  std::vector<std::string> uses;
  std::string file;  // where it is declared
  int line = 0;
};
std::vector<Room> read_rooms(const Tree& tree);

struct Include {
  int line = 0;
  bool quoted = false;
  std::string path;
};
std::vector<Include> read_includes(const Lines& lines);

// The module whose folder holds the file itself, or null.
const Module* owner(const std::vector<Module>& modules, const std::string& path);

bool contains(const std::vector<std::string>& names, const std::string& name);
bool has_ending(std::string_view path, std::initializer_list<std::string_view> endings);

// Runs a program of the build's own and returns what it printed; an error if it could not run or failed.
Result<std::string> output_of(const std::string& command);

}  // namespace tutti::tidy
