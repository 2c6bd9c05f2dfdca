// Services: made, listed, changed and stopped, and what gateways hear and say of them. The keys of engines
// are shown to gateways alone.
#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "control/cluster/authorize.hpp"
#include "control/controller/call.hpp"
#include "control/controller/random_text.hpp"
#include "control/controller/vault.hpp"
#include "control/wire/requests.hpp"
#include "control/wire/views.hpp"

namespace tutti::controller {
namespace {

constexpr std::int64_t services_page_max = 1000;
// All versions of all services, in some hundred bytes each.
constexpr std::size_t told_body_bytes_max = 8 << 20;

// A name that is too long stays so, and is refused as such.
std::string service_of(const Call& call) {
  return valid_utf8(call.argument("name").substr(0, cluster::service_name_bytes_max + 1));
}

void list_services(const Call& call) {
  const auto limit = call.number("limit", services_page_max);
  if (!limit || *limit < 1) return call.refuse(invalid("limit is a whole number above 0"));
  const wire::ServiceQuery query{.after = call.text("after"),
                                 .limit = static_cast<std::size_t>(std::min(*limit, services_page_max))};
  call.show([query](const auto& state, const auto&, const people::Caller& caller) {
    wire::ServiceQuery seen = query;
    seen.shows = [&](const cluster::Service& service) {
      return cluster::may_see(caller, service.queue(), service.user());
    };
    return wire::services_json(state, seen);
  });
}

void show_service(const Call& call) {
  call.show([name = service_of(call)](const auto& state, const auto&,
                                      const people::Caller& caller) -> Result<std::string> {
    const cluster::Service* service = cluster::visible_service(state, caller, name);
    if (service == nullptr) return cluster::no_visible_service(name);
    return wire::service_json(state, *service);
  });
}

// It is sealed as secrets are, which may wait for a disk: a new service needs it, and whether it is one is
// known only later.
void serve(const Call& call) {
  auto serve = wire::decode_serve(service_of(call), call.body());
  if (!serve) return call.refuse(serve.error());
  call.hand_to(call.services().desk, [call, serve = *std::move(serve)]() mutable {
    auto key = random_hex(cluster::engine_key_bytes);
    if (!key) return call.refuse(key.error());
    const cluster::SecretId id{cluster::SecretId::Of::service, serve.name,
                               std::string(cluster::engine_key_name)};
    auto sealed = call.services().vault.seal(id, *key);
    if (!sealed) return call.refuse(sealed.error());
    serve.key = *std::move(sealed);
    call.change(std::move(serve));
  });
}

void scale(const Call& call) {
  auto scale = wire::decode_scale(service_of(call), call.body());
  if (!scale) return call.refuse(scale.error());
  call.change(*std::move(scale));
}

void promote(const Call& call) { call.change(cluster::Promote{service_of(call)}); }
void roll_back(const Call& call) { call.change(cluster::RollBack{service_of(call)}); }
void stop(const Call& call) { call.change(cluster::StopService{service_of(call)}); }

void show_routes(const Call& call) {
  call.show([known = call.text("known"), &vault = call.services().vault](
                const auto& state, const auto&, const people::Caller& caller) -> Result<std::string> {
    // With what it can do now: it may have been less for a moment.
    if (!people::has(caller, people::Role::operate, people::everything))
      return tutti::forbidden("'" + caller.name + "' may not see the keys of services");
    return wire::routes_json(
        state, known, [&](const cluster::Secret& secret) { return vault.open(state, secret).value_or(""); });
  });
}

void hear(const Call& call) {
  auto told = wire::decode_told(call.body());
  if (!told) return call.refuse(told.error());
  call.change(*std::move(told));
}

void list_gateways(const Call& call) {
  call.show([](const auto& state, const auto&, const auto&) { return wire::gateways_json(state); });
}

}  // namespace

std::span<const Route> service_routes() {
  static const std::array table{
      Route{
          .method = "GET",
          .path = "/services",
          .need = Need::viewer,
          .query = {{"limit", "N", "services a page, at most 1000"},
                    {"after", "NEXT", "the `next` of the page before"}},
          .answer = {"ServiceList"},
          .summary = "Services of the queues that you see: what they serve, and how many replicas are ready",
          .handle = list_services},
      Route{.method = "GET",
            .path = "/services/{name}",
            .need = Need::viewer,
            .answer = {"ServiceDetail"},
            .summary = "One service with its replicas, and what is asked of it now",
            .handle = show_service},
      Route{.method = "PUT",
            .path = "/services/{name}",
            .need = Need::user,
            .body_bytes_max = one_job_body_bytes_max,
            .request = {"ServiceSpec"},
            .answer = {"SubmitReply"},
            .summary = "Makes a service, or gives it something else to serve, at once or as a canary",
            .handle = serve},
      Route{.method = "POST",
            .path = "/services/{name}/scale",
            .need = Need::user,
            .request = {"ScaleRequest"},
            .answer = {"SubmitReply"},
            .summary = "Says how many replicas it has at least and at most",
            .handle = scale},
      Route{.method = "POST",
            .path = "/services/{name}/promote",
            .need = Need::user,
            .answer = {"SubmitReply"},
            .summary = "Lets the canary take the place of what serves, whatever it was judged by",
            .handle = promote},
      Route{.method = "POST",
            .path = "/services/{name}/rollback",
            .need = Need::user,
            .answer = {"SubmitReply"},
            .summary = "Gives up the canary or the update that is under way",
            .handle = roll_back},
      Route{.method = "DELETE",
            .path = "/services/{name}",
            .need = Need::user,
            .answer = {"SubmitReply"},
            .summary = "Stops a service: its replicas end within their grace period",
            .handle = stop},
      Route{.method = "GET",
            .path = "/services/routes",
            .need = Need::operate,
            .query = {{"known", "REVISION",
                       "the `revision` of the answer before: without news there is no more"}},
            .answer = {"RouteList"},
            .summary = "For gateways: all services with their ready replicas, and the keys of these",
            .handle = show_routes},
      Route{.method = "POST",
            .path = "/services/told",
            .need = Need::operate,
            .body_bytes_max = told_body_bytes_max,
            .request = {"GatewayTold"},
            .answer = {"SubmitReply"},
            .summary = "From gateways: what is asked of services, and how it goes",
            .handle = hear},
      Route{.method = "GET",
            .path = "/gateways",
            .need = Need::viewer,
            .answer = {"GatewayList"},
            .summary = "Gateways that have said something within the last 10 s",
            .handle = list_gateways},
  };
  return table;
}

}  // namespace tutti::controller
