#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "base/text.hpp"
#include "tidy/rules.hpp"

namespace tutti::tidy {
namespace {

constexpr const char* document = "docs/faults.md";

// The names of the tests of each suite.
using Tests = std::map<std::string, std::set<std::string>>;

Tests read_tests(const Tree& tree) {
  static const std::regex declaration(R"(^TEST(_F|_P)?\(\s*(\w+),\s*(\w+))");
  Tests tests;
  for (const auto& [path, lines] : tree.files) {
    if (!has_ending(path, {".cpp", ".hpp"})) continue;
    for (std::size_t at = 0; at < lines.size(); ++at) {
      if (!lines[at].starts_with("TEST")) continue;
      // A long name stands in a line of its own.
      const std::string text = lines[at] + (at + 1 < lines.size() ? lines[at + 1] : "");
      std::smatch found;
      if (std::regex_search(text, found, declaration)) tests[found[2]].insert(found[3]);
    }
  }
  return tests;
}

// "TimeLimits.*": a star stands for any letters.
bool is_meant(std::string_view pattern, std::string_view name) {
  const auto star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const std::string_view end = pattern.substr(star + 1);
  return name.size() >= star + end.size() && name.starts_with(pattern.substr(0, star)) && name.ends_with(end);
}

bool has_test(const Tests& tests, const std::string& suite, std::string_view pattern) {
  const auto found = tests.find(suite);
  return found != tests.end() && std::any_of(found->second.begin(), found->second.end(),
                                             [&](const auto& name) { return is_meant(pattern, name); });
}

// A suite or a test by its name alone: the file beside it says whose it is.
bool has_name(const Tests& tests, const std::string& name) {
  return tests.contains(name) || std::any_of(tests.begin(), tests.end(),
                                             [&](const auto& suite) { return suite.second.contains(name); });
}

}  // namespace

Findings check_faults(const Tree& tree) {
  static const std::regex name(R"re(`(\w*)(\.([\w*]+))?`)re");
  static const std::regex link(R"re(\]\(\.\./([^)#]+))re");
  const auto found = tree.files.find(document);
  if (found == tree.files.end()) return {};
  const Tests tests = read_tests(tree);
  Findings findings;
  for (std::size_t at = 0; at < found->second.size(); ++at) {
    const std::string& line = found->second[at];
    const auto report = [&](const std::string& what) {
      findings.push_back({document, static_cast<int>(at) + 1, "faults", what});
    };
    for (std::sregex_iterator file(line.begin(), line.end(), link), end; file != end; ++file)
      if (!tree.has((*file)[1])) report("there is no file " + (*file)[1].str());
    const auto cell = line.rfind(" | ");
    if (!line.starts_with("| ") || !line.ends_with(" |") || cell == std::string::npos) continue;
    std::string suite;  // ".NAME" is of the one before
    for (std::sregex_iterator word(line.begin() + static_cast<std::ptrdiff_t>(cell), line.end(), name), end;
         word != end; ++word) {
      const std::string first = (*word)[1];
      const std::string second = (*word)[3];
      if (!first.empty()) suite = first;
      if (second.empty() ? has_name(tests, first) : has_test(tests, suite, second)) continue;
      report("there is no test " + word->str());
    }
  }
  return findings;
}

}  // namespace tutti::tidy
