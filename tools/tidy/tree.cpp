#include "tidy/tree.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>

#include "base/text.hpp"

namespace tutti::tidy {
namespace {

Lines to_lines(std::string_view text) {
  Lines lines;
  for (const std::string_view line : split(text, '\n')) lines.emplace_back(line);
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::string directory(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// `name LAYER x USES a b …` into a module.
Module parse_module(const std::string& call, const std::string& file, int line) {
  Module module;
  module.file = file;
  module.line = line;
  std::string keyword;
  std::string dir;
  static const std::regex bare_word(R"([^\s"]+)");
  for (std::sregex_iterator word(call.begin(), call.end(), bare_word), end; word != end; ++word) {
    const std::string text = word->str();
    if (module.name.empty()) {
      module.name = text;
    } else if (std::regex_match(text, std::regex("LAYER|USES|NEEDS|TESTS_USE|TESTS_NEED|PROGRAM|DIR"))) {
      keyword = text;
    } else if (keyword == "LAYER") {
      module.layer = text;
    } else if (keyword == "USES") {
      module.uses.push_back(text);
    } else if (keyword == "TESTS_USE") {
      module.tests_use.push_back(text);
    } else if (keyword == "DIR") {
      dir = text;
    }
  }
  constexpr std::string_view source_dir = "${CMAKE_SOURCE_DIR}/";
  module.folder = dir.starts_with(source_dir) ? dir.substr(source_dir.size()) : "src/" + module.name;
  return module;
}

}  // namespace

void Tree::plant(const std::string& path, std::string_view text) { files[path] = to_lines(text); }

Result<std::string> output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return failed("cannot run it").within(command);
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), got);
  if (::pclose(pipe) != 0) return failed("it ended with an error").within(command);
  return text;
}

Result<Tree> read_tree(const std::string& root) {
  auto listed = output_of("git -C '" + root + "' ls-files -co --exclude-standard");
  if (!listed) return std::move(listed).error();
  Tree tree;
  for (const std::string& path : to_lines(*listed)) {
    std::ifstream file(root + "/" + path, std::ios::binary);
    if (!file) continue;  // deleted, and not committed yet
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (text.find('\0') == std::string::npos) tree.plant(path, text);
  }
  return tree;
}

std::vector<Module> read_modules(const Tree& tree) {
  std::vector<Module> modules;
  for (const auto& [path, lines] : tree.files) {
    if (!path.ends_with("CMakeLists.txt")) continue;
    for (std::size_t at = 0; at < lines.size(); ++at) {
      const auto open = lines[at].find("tutti_module(");
      if (open == std::string::npos || trim(lines[at]).starts_with("#")) continue;
      std::string call = lines[at].substr(open + 13);
      for (std::size_t next = at + 1; call.find(')') == std::string::npos && next < lines.size(); ++next)
        call += " " + lines[next];
      modules.push_back(parse_module(call.substr(0, call.find(')')), path, static_cast<int>(at) + 1));
    }
  }
  return modules;
}

std::vector<Include> read_includes(const Lines& lines) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  std::vector<Include> includes;
  std::smatch match;
  for (std::size_t at = 0; at < lines.size(); ++at) {
    if (lines[at].find("include") != std::string::npos && std::regex_search(lines[at], match, pattern)) {
      includes.push_back({static_cast<int>(at) + 1, match[1] == "\"", match[2]});
    }
  }
  return includes;
}

const Module* owner(const std::vector<Module>& modules, const std::string& path) {
  const std::string folder = directory(path);
  const auto found = std::find_if(modules.begin(), modules.end(),
                                  [&](const Module& module) { return module.folder == folder; });
  return found == modules.end() ? nullptr : &*found;
}

bool has_ending(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

}  // namespace tutti::tidy
