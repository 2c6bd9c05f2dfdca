// Paths as tables of pages write them: in "/jobs/{id}" a part in braces is an argument, "{name...}" takes all
// parts that are left, and what stands in brackets may be missing: "/models/{name}[/versions/{version}]".
// Pure functions: any thread.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::net {

using Arguments = std::map<std::string, std::string, std::less<>>;

struct PathMatch {
  int literals = 0;  // parts that are the same: of two patterns that fit, the one with more of them is meant
  Arguments arguments;
};

// `parts` are those of the whole path, each decoded; an empty one is no argument. Nothing if the pattern is
// that of another path.
std::optional<PathMatch> match_path(std::string_view pattern, std::span<const std::string> parts);

// The names in braces, in the order of the path.
std::vector<std::string_view> argument_names(std::string_view pattern);

}  // namespace tutti::net
