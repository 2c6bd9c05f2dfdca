// What the controller says of its services to those who stand before them (`GET /services/routes`), and what
// they say of the requests for them (`POST /services/told`), as text. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "gate/route/tallies.hpp"

namespace tutti::gate {

inline constexpr std::size_t routes_bytes_max = std::size_t{16} << 20;
inline constexpr std::size_t services_max = 16'384;
inline constexpr std::size_t replicas_max = 16'384;  // of all services
inline constexpr std::size_t route_text_bytes_max = 1'024;

// One start of a job that answers.
struct RouteReplica {
  std::string name;  // JOB.ATTEMPT
  std::int64_t version = 0;
  std::string url;  // http://HOST:PORT

  friend auto operator<=>(const RouteReplica&, const RouteReplica&) = default;
};

struct RouteService {
  std::string name;
  std::int64_t version = 0;
  std::int64_t next_version = 0;  // 0: there is none
  std::int32_t canary_share = 0;  // thousandths of requests for the next version; 0: both are asked alike
  std::string key = {};           // that its replicas take; "": none is shown
  std::vector<RouteReplica> replicas;
};

struct RouteList {
  std::string revision;
  std::optional<std::vector<RouteService>> services;  // nothing: they are as they were
};

// `known` is the revision that was known when it was asked for.
Result<RouteList> read_routes(std::string_view body, std::string_view known);

// Of one version of a service.
struct Told {
  std::string service;
  std::int64_t version = 0;
  Tally tally;
  std::size_t waiting = 0;  // now, for a replica or in its queue
  std::size_t running = 0;  // now
  double cache_used = 0;    // of its replicas, on average: 0 to 1
};

std::string write_told(const std::string& gateway, const std::string& url, std::span<const Told> told);

}  // namespace tutti::gate
