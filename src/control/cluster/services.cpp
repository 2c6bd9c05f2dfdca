// Services: made, changed, stopped, and what gateways say of them. Whether he who asks may is looked at
// before (authorize.hpp); what follows for their replicas is in tend.cpp.
#include "control/cluster/services.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/visible.hpp"
#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

constexpr std::int32_t port_min = 1'024;
constexpr std::int32_t port_max = 65'535;
constexpr std::string_view ready_word = "ready ";

bool is_plain_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

bool is_word(std::string_view text, std::size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max && is_plain_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char letter) {
           return is_plain_letter(letter) || letter == '-' || letter == '_' || letter == '.';
         });
}

Error no_service(const ServiceName& name) {
  return invalid("there is no service '" + name + "'").remedy("`tutti services` lists them");
}

// What its service does for it, a replica does not ask for.
Result<> check_replica(const JobSpec& spec) {
  if (spec.shape.ranks != 1 || !spec.shape.rank_counts.empty() || spec.shape.nodes > 1)
    return invalid("a replica has one rank")
        .remedy("an engine that splits its model over several GPUs is one rank with several of them");
  if (spec.array || !spec.after.empty())
    return invalid("a replica is no element of an array, and comes after no job");
  if (spec.time_limit > Duration::zero()) return invalid("a replica has no time limit");
  if (!spec.sync.empty())
    return invalid("a replica ships no folder").remedy("name a model that every node can read");
  if (spec.restart_on_failure != 0)
    return invalid("a replica that fails is started again by its service")
        .remedy("leave restart_on_failure out");
  if (std::find(spec.secrets.begin(), spec.secrets.end(), engine_key_name) != spec.secrets.end())
    return invalid(std::string(engine_key_name) + " is the key that each replica gets from its service");
  return {};
}

std::string by_whom(const std::string& who) { return who.empty() ? "" : " by " + who; }

// What came since this gateway said something of it before. Of one that was not known nobody knows since when
// it counts, and what never was does not come back: a counter that has fallen tells nothing.
Seen difference(const ServiceTold& before, const ServiceTold& now) {
  Seen seen;
  if (now.requests >= before.requests) seen.requests = now.requests - before.requests;
  if (now.failures >= before.failures) seen.failures = now.failures - before.failures;
  seen.first_tokens = now.first_tokens.since(before.first_tokens);
  return seen;
}

void count_more(Fleet& fleet, std::int32_t version, const Seen& more, Instant now) {
  Seen& seen = fleet.seen[version];
  seen.requests += more.requests;
  seen.failures += more.failures;
  seen.first_tokens.add(more.first_tokens);
  if (now - fleet.lately_since >= lately || now < fleet.lately_since) {
    const bool is_long_ago = now - fleet.lately_since >= 2 * lately || now < fleet.lately_since;
    fleet.before = is_long_ago ? Latencies() : fleet.lately;
    fleet.lately = {};
    fleet.lately_since = now;
  }
  fleet.lately.add(more.first_tokens);
}

Result<> check_told(const GatewayTold& event) {
  if (!is_word(event.gateway, gateway_id_bytes_max))
    return invalid("the id of a gateway is at most " + std::to_string(gateway_id_bytes_max) +
                   " letters, digits, '-', '_' and '.'");
  if (event.url.size() > gateway_url_bytes_max || !is_visible_line(event.url))
    return invalid("that is no address of a gateway");
  if (event.services.size() > told_services_max)
    return invalid("a gateway tells of at most " + std::to_string(told_services_max) + " services");
  return {};
}

bool has_version(const Service& service, std::int32_t version) {
  return service.serving.number == version || (service.next && service.next->number == version);
}

std::size_t services_of(const State& state, const std::string& user) {
  return static_cast<std::size_t>(
      std::count_if(state.services.begin(), state.services.end(),
                    [&](const auto& service) { return service.second.user() == user; }));
}

Result<> set_bounds(Service& service, const Serve& event) {
  service.replicas_min = event.replicas_min.value_or(service.replicas_min);
  service.replicas_max = event.replicas_max.value_or(std::max(service.replicas_max, service.replicas_min));
  service.idle_time = event.idle_time.value_or(service.idle_time);
  service.target_ttft = event.target_ttft.value_or(service.target_ttft);
  if (service.replicas_min < 0 || service.replicas_max < 1 || service.replicas_max > replicas_max ||
      service.replicas_min > service.replicas_max)
    return invalid("a service has 0 to " + std::to_string(replicas_max) +
                   " replicas at least, and as many or more at most, but one");
  if (service.idle_time <= Duration::zero() || service.idle_time > idle_time_max)
    return invalid("the time without a request is more than 0 and at most " + format_duration(idle_time_max));
  if (service.target_ttft < Duration::zero() || service.target_ttft > target_ttft_max)
    return invalid("the target of first tokens is at most " + format_duration(target_ttft_max));
  service.wanted = std::clamp(service.wanted, service.replicas_min, service.replicas_max);
  return {};
}

}  // namespace

std::string text_of(const Version& version) { return "version " + std::to_string(version.number); }

Result<> check_service_name(std::string_view name) {
  // Pages of the API are called so.
  if (name == "routes" || name == "told")
    return invalid("no service is called '" + std::string(name) + "'").remedy("choose another name: --name");
  if (is_word(name, service_name_bytes_max)) return {};
  return invalid("that is no name of a service")
      .remedy("letters, digits, '-', '_' and '.', at most " + std::to_string(service_name_bytes_max) +
              ", a letter or a digit first");
}

std::optional<std::int32_t> ready_port(const Job& job) {
  if (!job.spec.service || !job.placed() || job.ending != EndCause::none || job.ranks.empty())
    return std::nullopt;
  const RankStatus& rank = job.ranks.front();
  if (rank.state != RankState::started || !rank.detail.starts_with(ready_word)) return std::nullopt;
  const std::string_view digits = std::string_view(rank.detail).substr(ready_word.size());
  std::int32_t port = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const std::string_view rest(read.ptr, static_cast<std::size_t>(digits.data() + digits.size() - read.ptr));
  const bool is_whole = rest.empty() || rest.front() == '\n' || rest.front() == '\r';
  if (read.ec != std::errc() || !is_whole || port < port_min || port > port_max) return std::nullopt;
  return port;
}

bool is_replica(const Service& service, const Job& job) {
  return job.spec.service && job.spec.service->name == service.name && job.id.number() >= service.jobs_from;
}

const Service* service_of(const State& state, const Job& job) {
  if (!job.spec.service) return nullptr;
  const auto found = state.services.find(job.spec.service->name);
  return found != state.services.end() && is_replica(found->second, job) ? &found->second : nullptr;
}

std::string routes_revision(const State& state) {
  return std::to_string(state.loaded_at.time_since_epoch().count()) + "-" +
         std::to_string(state.fleets.changes);
}

std::int32_t canary_replicas(std::int32_t wanted, std::int32_t share) {
  return std::max(1, (wanted * share + share_of_all - 1) / share_of_all);
}

std::int32_t ready_of(const Fleet& fleet, std::int32_t version) {
  return static_cast<std::int32_t>(
      std::count_if(fleet.replicas.begin(), fleet.replicas.end(), [version](const auto& replica) {
        return replica.second.port != 0 && (version == 0 || replica.second.version == version);
      }));
}

Demand demand_of(const State& state, const Fleet& fleet) {
  Demand demand;
  demand.known = !state.fleets.gateways.empty();
  for (const auto& [who, told] : fleet.told) {
    demand.waiting += told.waiting;
    demand.running += told.running;
    demand.cache_used = std::max(demand.cache_used, told.cache_used);
  }
  Latencies first_tokens = fleet.before;
  first_tokens.add(fleet.lately);
  demand.ttft_p90 = first_tokens.quantile(0.9);
  demand.ready = ready_of(fleet);
  return demand;
}

void derive_replica(State& state, const Job& job, Instant now) {
  const Service* service = service_of(state, job);
  if (service == nullptr) return;
  Fleets& fleets = state.fleets;
  auto& replicas = fleets.all[service->name].replicas;
  fleets.due.insert(service->name);
  if (job.finished()) {
    const auto gone = replicas.find(job.id);
    if (gone == replicas.end()) return;
    if (gone->second.port != 0) ++fleets.changes;
    replicas.erase(gone);
    return;
  }
  Replica& replica = replicas[job.id];
  replica.version = job.spec.service->version;
  const std::int32_t port = ready_port(job).value_or(0);
  if (port == replica.port) return;
  if (replica.port == 0) {
    replica.ready_since = now;
    replica.was_ready_for = {};
  } else if (port == 0) {
    replica.was_ready_for = now - replica.ready_since;
  }
  replica.port = port;
  ++fleets.changes;
}

void derive_fleets(State& state, Instant now) {
  state.fleets = {};
  for (const auto& [name, service] : state.services) {
    state.fleets.all[name];
    state.fleets.due.insert(name);
  }
  for (const JobId id : state.active) derive_replica(state, state.jobs.at(id), now);
}

// ---- what people ask for

Result<> Machine::admit_service(const Serve& event) {
  if (auto named = check_service_name(event.name); !named) return named;
  if (event.replica.service) return invalid("of which service a replica is, the cluster says");
  if (auto sound = check_limits(event.replica); !sound) return sound;
  if (auto sound = check_replica(event.replica); !sound) return sound;
  if (event.canary_share < 0 || event.canary_share >= share_of_all)
    return invalid("the canary's share of the requests is more than nothing and less than all");
  return admit(event.replica);
}

void Machine::on(const Serve& event) {
  if (event.only_command) {
    const Service* known = find_service(event.name);
    if (known == nullptr) return fail(no_service(event.name));
    Serve whole = event;
    whole.only_command = false;
    whole.replica = known->serving.replica;
    whole.replica.command = event.replica.command;
    if (!event.replica.user.empty()) whole.replica.user = event.replica.user;
    return on(whole);
  }
  if (auto admitted = admit_service(event); !admitted)
    return fail(
        std::move(admitted).error().within("service " + event.name.substr(0, service_name_bytes_max)));
  if (Service* known = find_service(event.name)) return update(*known, event);
  const auto refuse = [&](Error error) { fail(std::move(error).within("service " + event.name)); };
  if (event.canary_share > 0)
    return refuse(invalid("it serves nothing yet that a canary could take the place of")
                      .remedy("leave the canary out"));
  if (state_.services.size() >= services_max)
    return refuse(failed("there are " + std::to_string(services_max) + " services, which is the most"));
  if (services_of(state_, event.replica.user) >= services_of_one_max)
    return refuse(failed("'" + event.replica.user + "' has " + std::to_string(services_of_one_max) +
                         " services, which is the most"));
  const SecretId key{SecretId::Of::service, event.name, std::string(engine_key_name)};
  if (auto sealed = check_sealed(event.key); !sealed || event.key.id != key)
    return refuse(sealed ? invalid("it comes without the key of its engines") : std::move(sealed).error());
  Service service;
  service.name = event.name;
  service.serving = {.number = 1, .replica = event.replica, .bad_ends = 0, .not_before = {}};
  service.versions = 1;
  service.idle_time = idle_time_default;
  service.jobs_from = state_.next_job;
  service.made_at = now_;
  // One at first, to see that it works: it goes when nobody asks for it.
  service.wanted = 1;
  if (auto fits = set_bounds(service, event); !fits) return refuse(std::move(fits).error());
  keep_secret(event.key);
  change(service, "made");
  state_.fleets.all[service.name];
  touch(service);
  state_.services.emplace(event.name, std::move(service));
}

void Machine::update(Service& service, const Serve& event) {
  const auto refuse = [&](Error error) { fail(std::move(error).within("service " + service.name)); };
  if (event.replica.user != service.user())
    return refuse(invalid("it is of '" + service.user() + "', as whom its replicas run"));
  if (event.replica.queue != service.queue())
    return refuse(invalid("it is in the queue " + service.queue() + ", and stays there")
                      .remedy("stop it, and make it anew in the other queue"));
  Service changed = service;
  if (auto fits = set_bounds(changed, event); !fits) return refuse(std::move(fits).error());
  const bool is_next = service.next && service.next->replica == event.replica;
  const bool is_serving = !service.next && service.serving.replica == event.replica;
  if (is_serving && event.canary_share > 0)
    return refuse(invalid("that is what it serves: a canary is another version"));
  // Who did not hear the answer asks once more.
  if (is_next && service.canary_share != event.canary_share)
    return refuse(invalid("it is under way already, as " +
                          std::string(service.canary_share > 0 ? "a canary" : "an update"))
                      .remedy("`tutti serve promote` or `tutti serve rollback` first"));
  if (!is_next && service.next)
    return refuse(invalid(text_of(*service.next) + " is under way already")
                      .remedy("`tutti serve promote` or `tutti serve rollback` first"));
  if (!is_next && !is_serving) begin_next(changed, event);
  if (changed == service) return;
  service = std::move(changed);
  touch(service);
}

void Machine::begin_next(Service& service, const Serve& event) {
  service.next =
      Version{.number = ++service.versions, .replica = event.replica, .bad_ends = 0, .not_before = {}};
  service.canary_share = event.canary_share;
  service.next_since = now_;
  Fleet& fleet = state_.fleets.all.at(service.name);
  fleet.seen.clear();
  fleet.no_room_since = {};
  fleet.trouble.clear();
  const std::string number = text_of(*service.next);
  change(service,
         event.canary_share > 0
             ? number + " is a canary for " + std::to_string(event.canary_share / 10) +
                   (event.canary_share % 10 == 0 ? "" : "." + std::to_string(event.canary_share % 10)) +
                   "% of the requests"
             : number + " takes the place of " + text_of(service.serving));
}

void Machine::promote(Service& service, const std::string& why) {
  service.canary_share = 0;
  change(service, text_of(*service.next) + " is promoted" + why);
  touch(service);
}

void Machine::give_up_next(Service& service, const std::string& why) {
  const std::int32_t gone = service.next->number;
  change(service, text_of(*service.next) + " was rolled back" + why);
  service.next.reset();
  service.canary_share = 0;
  Fleet& fleet = state_.fleets.all.at(service.name);
  fleet.seen.clear();
  std::erase_if(fleet.told, [gone](const auto& told) { return told.first.second == gone; });
  touch(service);
}

void Machine::change(Service& service, std::string what) {
  service.last_change = std::move(what);
  service.changed_at = now_;
}

void Machine::on(const Promote& event) {
  Service* service = find_service(event.service);
  if (service == nullptr) return fail(no_service(event.service));
  if (!service->next || service->canary_share == 0)
    return fail(invalid("the service " + service->name + " has no canary")
                    .remedy("`tutti serve update NAME MODEL --canary 10%` makes one"));
  promote(*service, by_whom(event.by));
}

void Machine::on(const RollBack& event) {
  Service* service = find_service(event.service);
  if (service == nullptr) return fail(no_service(event.service));
  if (!service->next)
    return fail(invalid("nothing is under way that could be rolled back: " + text_of(service->serving) +
                        " of the service " + service->name + " serves")
                    .remedy("`tutti serve update` with the model that it had before"));
  give_up_next(*service, by_whom(event.by));
}

void Machine::on(const ScaleService& event) {
  Service* service = find_service(event.service);
  if (service == nullptr) return fail(no_service(event.service));
  Service changed = *service;
  Serve bounds;
  bounds.replicas_min = event.replicas_min;
  bounds.replicas_max = event.replicas_max;
  if (auto fits = set_bounds(changed, bounds); !fits)
    return fail(std::move(fits).error().within("service " + service->name));
  if (changed == *service) return;
  change(changed, std::to_string(event.replicas_min) + " to " + std::to_string(event.replicas_max) +
                      " replicas" + by_whom(event.by));
  *service = std::move(changed);
  touch(*service);
}

void Machine::on(const StopService& event) {
  Service* service = find_service(event.service);
  if (service == nullptr) return fail(no_service(event.service));
  const std::string why = "the service " + event.service + " was stopped" + by_whom(event.by);
  const auto fleet = state_.fleets.all.find(event.service);
  std::vector<JobId> replicas;
  for (const auto& [id, replica] : fleet->second.replicas) replicas.push_back(id);
  state_.fleets.alarms.erase({fleet->second.alarm, event.service});
  state_.fleets.all.erase(fleet);
  touch(*service);
  forget_secrets(SecretId::Of::service, event.service);
  state_.services.erase(event.service);
  state_.fleets.due.erase(event.service);
  for (auto& [id, gateway] : state_.fleets.gateways) gateway.services.erase(event.service);
  for (const JobId id : replicas) dismiss(state_.jobs.at(id), why);
  effects_.reply = std::move(replicas);
}

// ---- what gateways say

void Machine::on(const GatewayTold& event) {
  if (auto sound = check_told(event); !sound) return fail(std::move(sound).error());
  Fleets& fleets = state_.fleets;
  const bool is_known = fleets.gateways.contains(event.gateway);
  if (!is_known && fleets.gateways.size() >= gateways_max)
    return fail(failed("there are " + std::to_string(gateways_max) + " gateways, which is the most"));
  // Nothing was decided while there was none.
  if (fleets.gateways.empty()) {
    for (const auto& [name, service] : state_.services) fleets.due.insert(name);
  }
  Gateway& gateway = fleets.gateways[event.gateway];
  gateway.url = event.url;
  gateway.heard_at = now_;
  for (const ServiceName& name : gateway.services) {
    Fleet& fleet = fleets.all.at(name);
    for (auto at = fleet.told.lower_bound({event.gateway, 0});
         at != fleet.told.end() && at->first.first == event.gateway; ++at) {
      at->second.waiting = at->second.running = 0;
      at->second.cache_used = 0;
    }
    fleets.due.insert(name);
  }
  for (const ServiceTold& told : event.services) {
    const Service* service = find_service(told.service);
    if (service == nullptr || !has_version(*service, told.version)) continue;
    Fleet& fleet = fleets.all.at(told.service);
    const auto [known, is_new] = fleet.told.try_emplace({event.gateway, told.version});
    if (!is_new || is_known) count_more(fleet, told.version, difference(known->second, told), now_);
    known->second = told;
    gateway.services.insert(told.service);
    fleets.due.insert(told.service);
  }
}

void Machine::forget_gateways() {
  Fleets& fleets = state_.fleets;
  for (auto at = fleets.gateways.begin(); at != fleets.gateways.end();) {
    const std::string& id = at->first;
    const Duration silent = now_ - at->second.heard_at;
    if (silent <= gateway_time_max && silent >= Duration::zero()) {
      ++at;
      continue;
    }
    for (const ServiceName& name : at->second.services) {
      std::erase_if(fleets.all.at(name).told, [&](const auto& told) { return told.first.first == id; });
      fleets.due.insert(name);
    }
    at = fleets.gateways.erase(at);
  }
}

// The clock was set. What was said lately is said again soon, on the new one.
void Machine::move_services(Duration by) {
  const auto move = [by](Instant& at) {
    if (at != Instant()) at += by;
  };
  for (auto& [name, service] : state_.services) {
    move(service.serving.not_before);
    if (service.next) move(service.next->not_before);
    move(service.next_since);
    touch(service);
  }
  Fleets& fleets = state_.fleets;
  fleets.alarms.clear();
  for (auto& [id, gateway] : fleets.gateways) gateway.heard_at += by;
  for (auto& [name, fleet] : fleets.all) {
    for (auto& [id, replica] : fleet.replicas) replica.ready_since += by;
    fleet.memory = {};
    fleet.lately_since += by;
    fleet.tried_at = {};
    fleet.alarm = {};
    move(fleet.no_room_since);
  }
}

}  // namespace tutti::cluster
