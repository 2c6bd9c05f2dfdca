#include "net/http/pattern.hpp"

namespace tutti::net {
namespace {

constexpr std::string_view rest_mark = "...}";

bool is_argument(std::string_view part) { return part.starts_with('{'); }
bool takes_the_rest(std::string_view part) { return part.ends_with(rest_mark); }

std::string_view name_of(std::string_view part) {
  part.remove_prefix(1);
  part.remove_suffix(part.ends_with(rest_mark) ? rest_mark.size() : 1);
  return part;
}

// Takes the first part off a pattern: "jobs" of "/jobs/{id}", which leaves "/{id}".
std::string_view take_part(std::string_view& pattern) {
  pattern.remove_prefix(1);
  const std::string_view part = pattern.substr(0, pattern.find('/'));
  pattern.remove_prefix(part.size());
  return part;
}

// How many literal parts they share.
std::optional<int> fit(std::string_view pattern, std::span<const std::string> parts) {
  int literals = 0;
  for (const std::string& given : parts) {
    if (pattern.empty() || given.empty()) return std::nullopt;
    const std::string_view part = take_part(pattern);
    if (takes_the_rest(part)) break;
    if (is_argument(part)) continue;
    if (part != given) return std::nullopt;
    ++literals;
  }
  return pattern.empty() ? std::optional(literals) : std::nullopt;
}

Arguments arguments_of(std::string_view pattern, std::span<const std::string> parts) {
  Arguments arguments;
  for (std::size_t at = 0; !pattern.empty(); ++at) {
    const std::string_view part = take_part(pattern);
    if (!is_argument(part)) continue;
    std::string value = parts[at];
    if (takes_the_rest(part))
      for (const std::string& more : parts.subspan(at + 1)) value += "/" + more;
    arguments.emplace(name_of(part), std::move(value));
  }
  return arguments;
}

}  // namespace

std::optional<PathMatch> match_path(std::string_view pattern, std::span<const std::string> parts) {
  const auto open = pattern.find('[');
  if (open != std::string_view::npos) {
    const auto close = pattern.find(']', open);
    const std::string before(pattern.substr(0, open));
    const std::string after(pattern.substr(close + 1));
    if (auto without = match_path(before + after, parts)) return without;
    return match_path(before + std::string(pattern.substr(open + 1, close - open - 1)) + after, parts);
  }
  const auto literals = fit(pattern, parts);
  if (!literals) return std::nullopt;
  return PathMatch{*literals, arguments_of(pattern, parts)};
}

std::vector<std::string_view> argument_names(std::string_view pattern) {
  std::vector<std::string_view> names;
  for (auto open = pattern.find('{'); open != std::string_view::npos; open = pattern.find('{')) {
    const auto close = pattern.find('}', open);
    names.push_back(name_of(pattern.substr(open, close + 1 - open)));
    pattern.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace tutti::net
