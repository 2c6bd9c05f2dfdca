#include "net/sync/ignore.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "base/text.hpp"

namespace tutti::sync {
namespace {

constexpr std::string_view any_folders = "**";

// How long the element at the front of a pattern is, and whether it takes the letter.
struct Element {
  std::size_t length = 0;
  bool takes = false;
};

// A set such as [a-z_] or [!0-9]; nothing if the bracket is never closed.
std::optional<Element> read_set(std::string_view pattern, char letter) {
  std::size_t at = 1;
  const bool negated = pattern.size() > 1 && (pattern[1] == '!' || pattern[1] == '^');
  if (negated) ++at;
  bool found = false;
  for (const std::size_t first = at; at < pattern.size(); ++at) {
    if (pattern[at] == ']' && at > first) return Element{.length = at + 1, .takes = found != negated};
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    const char low = pattern[at];
    const bool range = at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']';
    if (range) at += 2;
    found = found || (low <= letter && letter <= pattern[at]);
  }
  return std::nullopt;
}

Element read_element(std::string_view pattern, char letter) {
  if (pattern[0] == '?') return {.length = 1, .takes = true};
  if (pattern[0] == '[') {
    if (const auto set = read_set(pattern, letter)) return *set;
  }
  if (pattern[0] == '\\' && pattern.size() > 1) return {.length = 2, .takes = pattern[1] == letter};
  return {.length = 1, .takes = pattern[0] == letter};
}

// Where to go on after a mismatch: behind the last star, which takes one more of the other side. Going back
// to an earlier star never helps, so the time is bounded by the product of the lengths.
struct Retry {
  std::size_t pattern_at = 0;
  std::size_t taken_to = 0;
};

bool name_matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;
  std::size_t pattern_at = 0;
  std::optional<Retry> retry;
  while (at < name.size()) {
    if (pattern_at < pattern.size() && pattern[pattern_at] == '*') {
      retry = Retry{.pattern_at = ++pattern_at, .taken_to = at};
      continue;
    }
    const auto element =
        pattern_at < pattern.size() ? read_element(pattern.substr(pattern_at), name[at]) : Element{};
    if (element.takes) {
      pattern_at += element.length;
      ++at;
    } else if (retry) {
      pattern_at = retry->pattern_at;
      at = ++retry->taken_to;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', pattern_at) == std::string_view::npos;
}

bool path_matches(std::span<const std::string> pattern, std::span<const std::string_view> names) {
  std::size_t at = 0;
  std::size_t pattern_at = 0;
  std::optional<Retry> retry;
  while (at < names.size()) {
    if (pattern_at < pattern.size() && pattern[pattern_at] == any_folders) {
      retry = Retry{.pattern_at = ++pattern_at, .taken_to = at};
    } else if (pattern_at < pattern.size() && name_matches(pattern[pattern_at], names[at])) {
      ++pattern_at;
      ++at;
    } else if (retry) {
      pattern_at = retry->pattern_at;
      at = ++retry->taken_to;
    } else {
      return false;
    }
  }
  return pattern_at == pattern.size();
}

// Without the end of a line written on Windows, and without blanks at the end that nobody sees; "\ " stays.
std::string_view without_tail(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  while (line.ends_with(' ') && !line.ends_with("\\ ")) line.remove_suffix(1);
  return line;
}

}  // namespace

IgnoreRules::IgnoreRules(std::string_view text) {
  for (const auto line : split(text, '\n')) add(without_tail(line));
}

void IgnoreRules::add(std::string_view line) {
  if (line.starts_with('#')) return;
  Rule rule;
  rule.takes_back = line.starts_with('!');
  if (rule.takes_back) line.remove_prefix(1);
  rule.folders_only = line.ends_with('/');
  if (rule.folders_only) line.remove_suffix(1);
  const bool anchored = line.find('/') != std::string_view::npos;
  if (line.starts_with('/')) line.remove_prefix(1);
  if (line.empty()) return;

  if (!anchored) rule.parts.emplace_back(any_folders);
  for (const auto part : split(line, '/')) rule.parts.emplace_back(part);
  // What is inside a folder is at least one name.
  if (rule.parts.back() == any_folders) rule.parts.emplace_back("*");
  rules_.push_back(std::move(rule));
}

bool IgnoreRules::ignores(std::string_view path, bool is_folder) const {
  const auto names = split(path, '/');
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->folders_only && !is_folder) continue;
    if (path_matches(rule->parts, names)) return !rule->takes_back;
  }
  return false;
}

}  // namespace tutti::sync
