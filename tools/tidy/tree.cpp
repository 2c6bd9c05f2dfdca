#include "tidy/tree.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

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

// What stands between the brackets of a call: `name LAYER x USES a b …`, as the words behind each keyword.
// The name comes behind "".
std::map<std::string, std::vector<std::string>> arguments_of(const std::string& call) {
  static const std::set<std::string> keywords{"LAYER",      "USES",    "NEEDS", "TESTS_USE",
                                              "TESTS_NEED", "PROGRAM", "DIR"};
  static const std::regex bare_word(R"([^\s"]+)");
  std::map<std::string, std::vector<std::string>> words;
  std::string keyword;
  for (std::sregex_iterator word(call.begin(), call.end(), bare_word), end; word != end; ++word) {
    if (keywords.contains(word->str())) {
      keyword = word->str();
    } else {
      words[keyword].push_back(word->str());
    }
  }
  return words;
}

struct Call {
  std::string file;
  int line = 0;
  bool is_left_out = false;  // of the build of the workers alone
  std::map<std::string, std::vector<std::string>> words;

  std::string one(const std::string& keyword) const {
    const auto found = words.find(keyword);
    return found == words.end() || found->second.empty() ? "" : found->second.front();
  }
  std::vector<std::string> all(const std::string& keyword) const {
    const auto found = words.find(keyword);
    return found == words.end() ? std::vector<std::string>() : found->second;
  }
};

constexpr std::string_view workers_go_without = "if(NOT TUTTI_WORKERS_ONLY)";

// Whether each line stands in a block that the build of the workers alone leaves out.
std::vector<bool> left_out(const Lines& lines) {
  std::vector<bool> out;
  std::vector<bool> blocks;
  for (const std::string& line : lines) {
    const std::string_view word = trim(line);
    if (word.starts_with("endif(") && !blocks.empty()) blocks.pop_back();
    if (word.starts_with("if(")) blocks.push_back(word.starts_with(workers_go_without));
    out.push_back(std::find(blocks.begin(), blocks.end(), true) != blocks.end());
  }
  return out;
}

// Every call of this function in the CMakeLists.txt files.
std::vector<Call> calls_of(const Tree& tree, const std::string& function) {
  std::vector<Call> calls;
  for (const auto& [path, lines] : tree.files) {
    if (!path.ends_with("CMakeLists.txt")) continue;
    const std::vector<bool> out = left_out(lines);
    for (std::size_t at = 0; at < lines.size(); ++at) {
      const auto open = lines[at].find(function + "(");
      if (open == std::string::npos || trim(lines[at]).starts_with("#")) continue;
      std::string call = lines[at].substr(open + function.size() + 1);
      for (std::size_t next = at + 1; call.find(')') == std::string::npos && next < lines.size(); ++next)
        call += " " + lines[next];
      calls.push_back(
          {path, static_cast<int>(at) + 1, out[at], arguments_of(call.substr(0, call.find(')')))});
    }
  }
  return calls;
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
  constexpr std::string_view source_dir = "${CMAKE_SOURCE_DIR}/";
  std::set<std::string> rooms_left_out;
  for (const Call& call : calls_of(tree, "tutti_room")) {
    if (call.is_left_out) rooms_left_out.insert(call.one(""));
  }
  std::vector<Module> modules;
  for (const Call& call : calls_of(tree, "tutti_module")) {
    const std::string name = call.one("");
    const std::string dir = call.one("DIR");
    modules.push_back(
        {.name = name,
         .layer = call.one("LAYER"),
         .folder = dir.starts_with(source_dir) ? dir.substr(source_dir.size()) : "src/" + name,
         .uses = call.all("USES"),
         .tests_use = call.all("TESTS_USE"),
         .is_for_workers = !call.is_left_out && !rooms_left_out.contains(name.substr(0, name.find('/'))),
         .file = call.file,
         .line = call.line});
  }
  return modules;
}

std::vector<Room> read_rooms(const Tree& tree) {
  std::vector<Room> rooms;
  for (const Call& call : calls_of(tree, "tutti_room"))
    rooms.push_back({.name = call.one(""), .uses = call.all("USES"), .file = call.file, .line = call.line});
  return rooms;
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

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_ending(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

}  // namespace tutti::tidy
