#include <algorithm>
#include <array>
#include <regex>
#include <set>

#include "base/text.hpp"
#include "tidy/rules.hpp"

namespace tutti::tidy {
namespace {

constexpr std::size_t file_lines_max = 800;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Files that tools or people look for by their name, so that nothing needs to mention them.
bool is_entry(const std::string& path) {
  static const std::set<std::string> entries{
      "README.md",      "LICENSE",        "CONTRIBUTING.md",  "CHANGELOG.md",  "dev",
      ".ci/run",        ".gitignore",     ".editorconfig",    ".clang-format", ".clang-tidy",
      ".gitattributes", "CMakeLists.txt", "CMakePresets.json"};
  return entries.contains(path) || path.ends_with("/CMakeLists.txt") || path.ends_with("/README.md");
}

std::set<std::string> all_included(const Tree& tree) {
  std::set<std::string> included;
  for (const auto& [path, lines] : tree.files) {
    if (!has_ending(path, {".hpp", ".cpp", ".cu", ".in"})) continue;
    for (const Include& include : read_includes(lines)) included.insert(include.path);
  }
  return included;
}

bool is_mentioned(const Tree& tree, const std::string& path) {
  const std::string name = base_name(path);
  // A script's module is named without its ending: include(toolchain), import './plot'.
  const std::string stem = has_ending(name, {".cmake", ".ts"}) ? name.substr(0, name.rfind('.')) : name;
  return std::any_of(tree.files.begin(), tree.files.end(), [&](const auto& other) {
    return other.first != path &&
           std::any_of(other.second.begin(), other.second.end(),
                       [&](const std::string& line) { return line.find(stem) != std::string::npos; });
  });
}

// What stands behind // on a line, nothing if there is no comment. A // inside a string literal is no
// comment.
std::string_view comment_of(std::string_view line) {
  bool in_string = false;
  for (std::size_t at = 0; at + 1 < line.size(); ++at) {
    if (line[at] == '\\') {
      ++at;
    } else if (line[at] == '"') {
      in_string = !in_string;
    } else if (!in_string && line[at] == '/' && line[at + 1] == '/') {
      return line.substr(at + 2);
    }
  }
  return {};
}

// Prose may hold a word of code, but it does not end like a statement. An example inside a comment is
// indented by three blanks or more.
bool looks_like_code(std::string_view comment) {
  static const std::regex statement(
      R"((.*[\w)\]}"']\s*(\(.*\)|=.*|\+\+|--)\s*;|(return|break|continue|goto|throw|delete|using|case|auto|const|int|bool|char|float|double|std::\S+)\b.*;)"
      R"(|(if|for|while|switch|else|do|try|class|struct|namespace)\b.*\{|\}.*|#\s*(include|define|if|ifdef|ifndef|endif|pragma)\b.*))");
  if (comment.starts_with("   ")) return false;
  const std::string text(trim(comment));
  return !text.empty() && std::regex_match(text, statement);
}

}  // namespace

Findings check_dead_files(const Tree& tree, const std::vector<Module>& modules) {
  Findings findings;
  const auto included = all_included(tree);
  for (const auto& entry : tree.files) {
    const std::string& path = entry.first;
    const Module* module = owner(modules, path);
    const auto report = [&](const std::string& message) { findings.push_back({path, 1, "dead", message}); };
    // The corpus of a fuzz target is read as a folder.
    if (is_entry(path) || path.starts_with("tests/corpus/")) continue;
    if (path.ends_with(".hpp")) {
      const bool used = module != nullptr
                            ? included.contains(module->name + "/" + base_name(path))
                            : std::any_of(included.begin(), included.end(), [&](const std::string& include) {
                                return path.ends_with("/" + include);
                              });
      if (!used) report("nothing includes this header");
    } else if (has_ending(path, {".cpp", ".cu"})) {
      if (module == nullptr && !is_mentioned(tree, path))
        report("no module and no CMakeLists.txt builds this source");
    } else if (!is_mentioned(tree, path)) {
      report("nothing mentions this file");
    }
  }
  return findings;
}

Findings check_long_files(const Tree& tree) {
  Findings findings;
  for (const auto& [path, lines] : tree.files) {
    if (!has_ending(path,
                    {".hpp", ".cpp", ".cu", ".ts", ".css", ".cmake", ".txt", ".proto", ".sh", ".md", "dev"}))
      continue;
    if (lines.size() <= file_lines_max) continue;
    findings.push_back(
        {path, static_cast<int>(file_lines_max) + 1, "long",
         std::to_string(lines.size()) + " lines; a file has at most " + std::to_string(file_lines_max)});
  }
  return findings;
}

Findings check_commented_code(const Tree& tree) {
  Findings findings;
  for (const auto& [path, lines] : tree.files) {
    if (!has_ending(path, {".hpp", ".cpp", ".cu", ".ts", ".proto"})) continue;
    for (std::size_t at = 0; at < lines.size(); ++at) {
      // A closing brace's own remark names what it closes.
      const std::string_view comment = comment_of(lines[at]);
      if (trim(comment).starts_with("namespace") || !looks_like_code(comment)) continue;
      findings.push_back(
          {path, static_cast<int>(at) + 1, "commented-out",
           "code in a comment: delete it, git remembers; an example is indented by three blanks"});
    }
  }
  return findings;
}

Findings check_home_paths(const Tree& tree) {
  static const std::regex home(R"((^|[^\w.])/(home|root|Users)/[\w.~-])");
  Findings findings;
  for (const auto& [path, lines] : tree.files) {
    for (std::size_t at = 0; at < lines.size(); ++at) {
      if (lines[at].size() > 10'000 || !std::regex_search(lines[at], home)) continue;
      findings.push_back({path, static_cast<int>(at) + 1, "home-path",
                          "a path into somebody's home: it exists on one machine only"});
    }
  }
  return findings;
}

}  // namespace tutti::tidy
