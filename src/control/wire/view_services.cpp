#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

constexpr std::size_t engine_word = 1;  // PROGRAM engine MODEL
constexpr std::size_t model_word = 2;

double part_of(std::int32_t share) { return static_cast<double>(share) / cluster::share_of_all; }

// What it serves, where its command says it; else its program.
std::string model_of(const cluster::JobSpec& replica) {
  const auto& command = replica.command;
  const bool is_engine = command.size() > model_word && command[engine_word] == "engine";
  return is_engine ? command[model_word] : command.front();
}

// Where it answers: an address of IPv6 stands in brackets.
std::string url_of(const cluster::State& state, const cluster::Job& job, std::int32_t port) {
  const std::string& address = state.nodes.at(job.places.front().node).address;
  const bool is_v6 = address.find(':') != std::string::npos;
  return "http://" + (is_v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

void fill_service(const cluster::State& state, const cluster::Service& service, proto::ServiceView& view) {
  view.set_name(service.name);
  view.set_queue(service.queue());
  view.set_user(service.user());
  view.set_model(model_of(service.serving.replica));
  view.set_state(std::string(cluster::state_of(state, service)));
  view.set_reason(cluster::reason_of(state, service));
  view.set_version(service.serving.number);
  if (service.next) view.set_next_version(service.next->number);
  if (service.canary_share > 0) view.set_canary_share(part_of(service.canary_share));
  view.set_replicas_ready(cluster::ready_of(state.fleets.all.at(service.name)));
  view.set_replicas_wanted(service.wanted);
  view.set_replicas_min(service.replicas_min);
  view.set_replicas_max(service.replicas_max);
  view.set_changed_at(format_instant(service.changed_at));
  view.set_last_change(service.last_change);
  view.set_made_at(format_instant(service.made_at));
}

void fill_replica(const cluster::State& state, const cluster::Job& job, const cluster::Replica& replica,
                  proto::ReplicaView& view) {
  view.set_job(job.id.text());
  view.set_attempt(job.attempt);
  view.set_version(replica.version);
  const bool is_ready = replica.port != 0;
  const bool is_ending = job.placed() && job.ending != cluster::EndCause::none;
  view.set_state(is_ready ? "ready" : is_ending ? "ending" : std::string(cluster::state_name(job)));
  if (job.placed()) view.set_node(job.places.front().node);
  if (is_ready) view.set_url(url_of(state, job, replica.port));
  view.set_reason(cluster::reason_of(state, job));
}

double in_ms(Duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

void fill_route(const cluster::State& state, const cluster::Service& service, proto::RouteService& route) {
  const cluster::Fleet& fleet = state.fleets.all.at(service.name);
  route.set_name(service.name);
  route.set_version(service.serving.number);
  if (service.next) route.set_next_version(service.next->number);
  route.set_canary_share(part_of(service.canary_share));
  for (const auto& [id, replica] : fleet.replicas) {
    if (replica.port == 0) continue;
    auto* added = route.add_replicas();
    const cluster::Job& job = state.jobs.at(id);
    added->set_job(id.text());
    added->set_attempt(job.attempt);
    added->set_version(replica.version);
    added->set_url(url_of(state, job, replica.port));
  }
  route.set_may_wake(route.replicas().empty());
}

}  // namespace

std::string services_json(const cluster::State& state, const ServiceQuery& query) {
  proto::ServiceList list;
  const cluster::Service* last = nullptr;
  for (auto at = state.services.upper_bound(query.after); at != state.services.end(); ++at) {
    if (query.shows && !query.shows(at->second)) continue;
    if (static_cast<std::size_t>(list.services_size()) == query.limit) {
      list.set_next(last->name);
      break;
    }
    last = &at->second;
    fill_service(state, *last, *list.add_services());
  }
  return print(list);
}

std::string service_json(const cluster::State& state, const cluster::Service& service) {
  proto::ServiceView view;
  fill_service(state, service, view);
  const cluster::Fleet& fleet = state.fleets.all.at(service.name);
  proto::ServiceDetail detail;
  for (const auto& [id, replica] : fleet.replicas)
    fill_replica(state, state.jobs.at(id), replica, *detail.add_replicas());
  if (const cluster::Demand demand = cluster::demand_of(state, fleet); demand.known) {
    auto* told = detail.mutable_demand();
    told->set_waiting(demand.waiting);
    told->set_running(demand.running);
    told->set_cache_used(demand.cache_used);
    told->set_ttft_p90_ms(in_ms(demand.ttft_p90));
  }
  detail.set_idle_s(in_seconds(service.idle_time));
  detail.set_target_ttft_ms(in_ms(service.target_ttft));
  for (const std::string& word : service.serving.replica.command) detail.add_command(word);
  return beside(print(view), print(detail));
}

std::string routes_json(const cluster::State& state, const std::string& known,
                        const std::function<std::string(const cluster::Secret&)>& open) {
  const std::string revision = cluster::routes_revision(state);
  if (known == revision) {
    proto::RouteRevision same;
    same.set_revision(revision);
    return print(same);
  }
  proto::RouteList list;
  list.set_revision(revision);
  for (const auto& [name, service] : state.services) {
    proto::RouteService& route = *list.add_services();
    fill_route(state, service, route);
    const auto key =
        state.secrets.find({cluster::SecretId::Of::service, name, std::string(cluster::engine_key_name)});
    if (key != state.secrets.end()) route.set_key(open(key->second));
  }
  return print(list);
}

std::string gateways_json(const cluster::State& state) {
  proto::GatewayList list;
  for (const auto& [id, gateway] : state.fleets.gateways) {
    auto* added = list.add_gateways();
    added->set_id(id);
    added->set_url(gateway.url);
  }
  return print(list);
}

}  // namespace tutti::wire
