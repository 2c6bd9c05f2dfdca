#include "gate/route/route.hpp"

#include <algorithm>
#include <cmath>

#include "base/id.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::gate {
namespace {

using json::Value;

const json::Array& list_of(const Value& object, std::string_view key) {
  static const json::Array none;
  const Value* const found = object.find(key);
  return found == nullptr || found->list() == nullptr ? none : *found->list();
}

// "" where it is no text, or one that is too long.
std::string text_of(const Value& object, std::string_view key) {
  const Value* const found = object.find(key);
  if (found == nullptr || found->text() == nullptr || found->text()->size() > route_text_bytes_max) return {};
  return *found->text();
}

// JSON of protobuf has numbers of 64 bits as texts; 0 where there is none.
std::int64_t number_of(const Value& object, std::string_view key) {
  const Value* const found = object.find(key);
  if (found == nullptr) return 0;
  if (found->text() != nullptr) {
    const auto number = parse_id_number(*found->text());
    return number ? static_cast<std::int64_t>(*number) : 0;
  }
  return found->whole().value_or(0);
}

// "canary_share" is told as a part of one.
std::int32_t share_of(const Value& object) {
  const Value* const found = object.find("canary_share");
  const double share = found == nullptr ? 0 : std::clamp(found->number().value_or(0), 0.0, 1.0);
  return static_cast<std::int32_t>(std::lround(share * 1'000));
}

std::string revision_of(const Value& root) {
  const Value* const found = root.find("revision");
  if (found == nullptr) return {};
  return found->text() != nullptr ? text_of(root, "revision") : std::to_string(found->whole().value_or(0));
}

}  // namespace

Result<RouteList> read_routes(std::string_view body, std::string_view known) {
  const auto root = json::parse(body);
  if (!root || root->object() == nullptr) return failed("it does not tell its services as a JSON object");
  RouteList routes{.revision = revision_of(*root), .services = std::nullopt};
  // Where there are none, the list is not there, either.
  if (root->find("services") == nullptr && !routes.revision.empty() && routes.revision == known)
    return routes;
  std::vector<RouteService>& services = routes.services.emplace();
  std::size_t replicas = 0;
  for (const Value& told : list_of(*root, "services")) {
    RouteService service{.name = text_of(told, "name"),
                         .version = number_of(told, "version"),
                         .next_version = number_of(told, "next_version"),
                         .canary_share = share_of(told),
                         .key = text_of(told, "key"),
                         .replicas = {}};
    if (service.name.empty()) return failed("it tells of a service without a name");
    for (const Value& replica : list_of(told, "replicas")) {
      if (++replicas > replicas_max)
        return failed("it tells of more than " + std::to_string(replicas_max) + " replicas");
      service.replicas.push_back({.name = std::to_string(number_of(replica, "job")) + "." +
                                          std::to_string(number_of(replica, "attempt")),
                                  .version = number_of(replica, "version"),
                                  .url = text_of(replica, "url")});
    }
    services.push_back(std::move(service));
    if (services.size() > services_max)
      return failed("it tells of more than " + std::to_string(services_max) + " services");
  }
  return routes;
}

std::string write_told(const std::string& gateway, const std::string& url, std::span<const Told> told) {
  json::Array services;
  for (const Told& each : told) {
    json::Object service{{"name", each.service},
                         {"version", each.version},
                         {"requests", each.tally.requests},
                         {"failures", each.tally.failures},
                         {"waiting", each.waiting},
                         {"running", each.running},
                         {"cache_used", each.cache_used}};
    const FirstTokens& times = each.tally.first_tokens;
    if (times != FirstTokens{}) service["ttft_ms"] = json::array_of(times);
    services.emplace_back(std::move(service));
  }
  return json::write(json::Object{{"gateway", gateway}, {"url", url}, {"services", std::move(services)}});
}

}  // namespace tutti::gate
