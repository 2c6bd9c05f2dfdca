#include <algorithm>
#include <regex>

#include "base/text.hpp"
#include "tidy/rules.hpp"

namespace tutti::tidy {
namespace {

constexpr const char* control_room = "src/control/";
constexpr const char* prefix_owner = "src/control/controller/routes.hpp";
constexpr const char* table_ends = "<!-- end -->";

// The number of the line, from 1, behind so many others; 0 if there is none.
int line_of(const Lines& lines, const std::string& text, int behind = 0) {
  const auto found = std::find(lines.begin() + behind, lines.end(), text);
  return found == lines.end() ? 0 : static_cast<int>(found - lines.begin()) + 1;
}

}  // namespace

Findings check_prefix(const Tree& tree) {
  // As a whole path, or part by part.
  static const std::regex prefix(R"re("/?api(/v1|"))re");
  Findings findings;
  for (const auto& [path, lines] : tree.files) {
    if (!path.starts_with(control_room) || path == prefix_owner) continue;
    if (!has_ending(path, {".cpp", ".hpp"}) || path.ends_with("_test.cpp")) continue;
    for (std::size_t at = 0; at < lines.size(); ++at) {
      if (!std::regex_search(lines[at], prefix)) continue;
      findings.push_back({path, static_cast<int>(at) + 1, "routes",
                          "requests are answered through the table of routes: add a row to a family there"});
    }
  }
  return findings;
}

Findings check_route_table(const Tree& tree, const RouteTable& table, std::string_view markdown) {
  const std::string document = table.document;
  const std::string table_begins = "<!-- " + table.command + " -->";
  const auto found = tree.files.find(document);
  const Lines none;
  const Lines& lines = found == tree.files.end() ? none : found->second;
  const int begin = line_of(lines, table_begins);
  const int end = line_of(lines, table_ends, begin);
  if (begin == 0 || end <= begin) {
    return {{document, 1, "routes",
             "the table of requests stands between " + table_begins + " and " + table_ends}};
  }
  const Lines shown(lines.begin() + begin, lines.begin() + end - 1);
  Lines expected;
  for (const auto line : split(trim(markdown), '\n')) expected.emplace_back(line);
  if (shown == expected) return {};
  const auto differs = std::mismatch(shown.begin(), shown.end(), expected.begin(), expected.end()).first;
  return {{document, begin + 1 + static_cast<int>(differs - shown.begin()), "routes",
           "the table of requests is not what `" + table.command + "` prints"}};
}

}  // namespace tutti::tidy
