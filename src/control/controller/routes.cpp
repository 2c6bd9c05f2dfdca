#include "control/controller/routes.hpp"

#include <algorithm>
#include <optional>

namespace tutti::controller {
namespace {

bool is_argument(std::string_view part) { return part.starts_with('{'); }

// Takes the first part off a pattern: "jobs" of "/jobs/{id}", which leaves "/{id}".
std::string_view take_part(std::string_view& pattern) {
  pattern.remove_prefix(1);
  const std::string_view part = pattern.substr(0, pattern.find('/'));
  pattern.remove_prefix(part.size());
  return part;
}

// How many literal parts they share; nothing if the pattern is that of another path.
std::optional<int> fit(std::string_view pattern, std::span<const std::string> parts) {
  int literals = 0;
  for (const std::string& given : parts) {
    if (pattern.empty() || given.empty()) return std::nullopt;
    const std::string_view part = take_part(pattern);
    if (is_argument(part)) continue;
    if (part != given) return std::nullopt;
    ++literals;
  }
  return pattern.empty() ? std::optional(literals) : std::nullopt;
}

Arguments arguments_of(std::string_view pattern, std::span<const std::string> parts) {
  Arguments arguments;
  for (const std::string& given : parts) {
    const std::string_view part = take_part(pattern);
    if (is_argument(part)) arguments.emplace(part.substr(1, part.size() - 2), given);
  }
  return arguments;
}

}  // namespace

std::string_view name_of(Caller caller) {
  switch (caller) {
    case Caller::anybody:
      return "anybody";
    case Caller::agent:
      return "agent";
    case Caller::admin:
      return "admin";
  }
  return "";
}

std::string_view name_of(RateClass rate) {
  switch (rate) {
    case RateClass::open_pages:
      return "open pages";
    case RateClass::requests:
      return "requests";
  }
  return "";
}

std::string_view name_of(Format format) {
  switch (format) {
    case Format::json:
      return "json";
    case Format::bytes:
      return "bytes";
    case Format::events:
      return "events";
    case Format::websocket:
      return "websocket";
  }
  return "";
}

std::span<const Route> routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> rows;
    for (const auto family : {cluster_routes(), job_routes(), explain_routes(), node_routes(), queue_routes(),
                              fabric_routes(), blob_routes()})
      rows.insert(rows.end(), family.begin(), family.end());
    return rows;
  }();
  return all;
}

const Route* Page::route(std::string_view method) const {
  const auto found =
      std::find_if(routes.begin(), routes.end(), [&](const Route* route) { return route->method == method; });
  return found == routes.end() ? nullptr : *found;
}

std::string Page::methods() const {
  std::string text;
  for (const Route* route : routes) text += (text.empty() ? "" : ", ") + std::string(route->method);
  return text;
}

Page find_page(std::span<const Route> table, std::span<const std::string> parts) {
  static const auto prefix_parts =
      static_cast<std::size_t>(std::count(api_prefix.begin(), api_prefix.end(), '/'));
  if (parts.size() <= prefix_parts || !fit(api_prefix, parts.first(prefix_parts))) return {};
  const auto below = parts.subspan(prefix_parts);
  Page page;
  int literals_most = -1;
  for (const Route& route : table) {
    const auto literals = fit(route.path, below);
    if (!literals || *literals < literals_most) continue;
    if (*literals > literals_most) page.routes.clear();
    literals_most = *literals;
    page.routes.push_back(&route);
  }
  if (!page.routes.empty()) page.arguments = arguments_of(page.routes.front()->path, below);
  return page;
}

std::vector<std::string_view> argument_names(std::string_view path) {
  std::vector<std::string_view> names;
  while (!path.empty()) {
    const std::string_view part = take_part(path);
    if (is_argument(part)) names.push_back(part.substr(1, part.size() - 2));
  }
  return names;
}

}  // namespace tutti::controller
