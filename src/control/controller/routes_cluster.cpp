// The cluster as a whole, and the door for agents.
#include <array>

#include "base/clock/clock.hpp"
#include "base/version/version.hpp"
#include "control/controller/audit_keeper.hpp"
#include "control/controller/call.hpp"
#include "control/controller/registrar.hpp"
#include "control/controller/vault.hpp"

namespace tutti::controller {
namespace {

void show_health(const Call& call) { call.answer(R"({"alive":true})"); }

void show_openapi(const Call& call) { call.exchange().answer({.status = 200, .body = openapi_json()}); }

void show_status(const Call& call) {
  wire::Kept kept = call.services().janitor.kept();
  call.services().audit.tell(kept);
  const Registrar* registrar = call.services().registrar;
  std::string ends = registrar == nullptr ? "" : registrar->ends_soon(now_on_the_wall());
  call.show([kept, ends = std::move(ends), &vault = call.services().vault](const auto& state,
                                                                           const auto& health, const auto&) {
    return wire::status_json(state, health, version(), kept, {vault.trouble(state), ends});
  });
}

void watch(const Call& call) { call.services().hub.add_watcher(call.exchange(), call.by()); }

void join(const Call& call) {
  if (!call.request().websocket) return call.exchange().answer(no_such_page(call.request()));
  const Services& services = call.services();
  const auto& peer = call.request().peer;
  if (!peer && !services.takes_join_token) {
    const Error why = invalid("a node shows its certificate here, and this one shows none");
    call.note({.verb = "connect", .object = "a node", .what = {}, .who = {}, .refused = why.text()});
    return call.refuse(Error(why).remedy("`tutti agent join` with a token (`tutti nodes token`) gets one"),
                       403);
  }
  Papers papers;
  if (peer) papers = {peer->name.node, peer->key_id, ""};
  papers.is_behind = peer && services.registrar->is_behind(peer->name.node);
  const auto good = peer ? services.registrar->check(*peer, now_on_the_wall()) : Result<>();
  if (!good) papers.refused = good.error().text() + "; " + good.error().remedy();
  call.exchange().upgrade([&hub = services.hub, remote = call.request().remote,
                           papers = std::move(papers)](const std::shared_ptr<net::Socket>& socket) {
    hub.add_agent(socket, remote, papers);
  });
}

}  // namespace

std::span<const Route> cluster_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/health",
            .need = Need::nothing,
            .rate = RateClass::open_pages,
            .answer = {"{alive}"},
            .summary = "Tells that the controller is alive",
            .handle = show_health},
      Route{.method = "GET",
            .path = "/openapi.json",
            .need = Need::nothing,
            .rate = RateClass::open_pages,
            .answer = {"OpenAPI 3"},
            .summary = "Describes the API for machines",
            .handle = show_openapi},
      Route{.method = "GET",
            .path = "/status",
            .need = Need::viewer,
            .answer = {"StatusView"},
            .summary = "The cluster in a few numbers: nodes, GPUs, jobs, whether the store can be written",
            .handle = show_status},
      Route{.method = "GET",
            .path = "/events",
            .need = Need::viewer,
            .answer = {"job JobView, node NodeView, note {text}", Format::events},
            .summary = "Every change as server-sent events",
            .handle = watch},
      Route{.method = "GET",
            .path = "/agent",
            .need = Need::agent,
            .answer = {"protobuf frames: AgentMessage up, ControllerMessage down", Format::websocket},
            .summary = "An agent joins the cluster",
            .handle = join},
  };
  return table;
}

}  // namespace tutti::controller
