#include "control/controller/routes.hpp"

#include <algorithm>

namespace tutti::controller {

std::optional<people::Role> role_of(Need need) {
  switch (need) {
    case Need::nothing:
    case Need::agent:
    case Need::person:
      return std::nullopt;
    case Need::viewer:
      return people::Role::viewer;
    case Need::user:
      return people::Role::user;
    case Need::queue_admin:
      return people::Role::queue_admin;
    case Need::operate:
      return people::Role::operate;
    case Need::admin:
      return people::Role::admin;
  }
  return people::Role::admin;
}

std::string_view name_of(Need need) {
  if (const auto role = role_of(need)) return people::name_of(*role);
  if (need == Need::person) return "person";
  return need == Need::agent ? "agent" : "anybody";
}

std::string_view name_of(RateClass rate) {
  switch (rate) {
    case RateClass::open_pages:
      return "open pages";
    case RateClass::logins:
      return "logins";
    case RateClass::joins:
      return "joins";
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
    for (const auto family :
         {cluster_routes(), login_routes(), job_routes(), explain_routes(), node_routes(), join_routes(),
          authority_routes(), queue_routes(), people_routes(), fabric_routes(), blob_routes(), audit_routes(),
          secret_routes(), service_routes()})
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
  if (parts.size() <= prefix_parts || !net::match_path(api_prefix, parts.first(prefix_parts))) return {};
  Page page;
  int literals_most = -1;
  for (const Route& route : table) {
    auto match = net::match_path(route.path, parts.subspan(prefix_parts));
    if (!match || match->literals < literals_most) continue;
    if (match->literals > literals_most) page = {};
    literals_most = match->literals;
    page.routes.push_back(&route);
    page.arguments = std::move(match->arguments);
  }
  return page;
}

}  // namespace tutti::controller
