#include "lab/sim/services.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "lab/sim/program.hpp"

namespace tutti::sim {
namespace {

const std::array<std::string, 3> names{"chat", "code", "tiny"};
const std::array<std::string, 2> gateways{"g1", "g2"};
constexpr Duration told_every = 1s;
constexpr Duration word_late_max = 15s;  // longer than it is remembered
constexpr double word_lost = 0.1;
constexpr double word_late = 0.1;
constexpr double word_twice = 0.1;
// They are gone for a while, too.
constexpr double gateway_silent = 0.05;
constexpr double version_is_bad = 0.3;
constexpr double request_fails = 0.02;  // of a version that is no good
constexpr std::int32_t replicas_most = 4;
constexpr std::size_t key_sealed_bytes = 60;

bool is_bad(const cluster::Service& service, std::int32_t version) {
  const cluster::Version& of =
      service.next && service.next->number == version ? *service.next : service.serving;
  return of.replica.command.all().back() == "2";
}

}  // namespace

void Services::begin() {
  for (const std::string& gateway : gateways) tell(gateway);
}

// ---- people

void Services::ask(const std::string& what, cluster::Event event) {
  world_.note("serving: " + what);
  controller_.happen(std::move(event), [](const Result<std::vector<cluster::JobId>>&) {});
}

void Services::act() {
  const std::string& name = names[prng_.below(names.size())];
  const bool is_known = controller_.up() && controller_.state().services.contains(name);
  if (!is_known) return serve(name, false);
  const double what = prng_.unit();
  if (what < 0.40) return serve(name, true);
  if (what < 0.55) return ask("promote " + name, cluster::Promote{name});
  if (what < 0.70) return ask("roll back " + name, cluster::RollBack{name});
  if (what < 0.90) {
    const auto least = static_cast<std::int32_t>(prng_.below(3));
    const auto most = static_cast<std::int32_t>(prng_.between(std::max(least, 1), replicas_most));
    return ask("scale " + name, cluster::ScaleService{name, least, most});
  }
  ask("stop " + name, cluster::StopService{name});
}

void Services::serve(const std::string& name, bool is_update) {
  const bool is_good = !prng_.chance(version_is_bad);
  cluster::Serve event;
  event.name = name;
  event.replica.name = name;
  event.replica.user = "server";
  std::vector<std::string> command = some_replica(prng_, is_good || prng_.chance(0.5));
  // One that is no good may start all the same, and fail its requests.
  if (!is_good) command.back() = "2";
  event.replica.command = std::move(command);
  event.replica.shape.ranks = 1;
  event.replica.shape.cpus = 1;
  event.replica.grace = std::chrono::milliseconds(prng_.between(10, 3'000));
  if (!is_update) {
    event.replicas_min = static_cast<std::int32_t>(prng_.below(3));
    event.replicas_max = replicas_most;
    event.idle_time = 10s;
  } else if (prng_.chance(0.5)) {
    event.canary_share = static_cast<std::int32_t>(prng_.between(50, 600));
  }
  const std::string sealed(key_sealed_bytes, 's');
  event.key = {.id = {cluster::SecretId::Of::service, name, std::string(cluster::engine_key_name)},
               .key = "key",
               .sealed = sealed,
               .bytes = static_cast<std::int32_t>(cluster::engine_key_bytes)};
  const std::string what = (is_update ? "update " : "make ") + name + " of " + event.replica.command.front();
  ask(what, std::move(event));
}

// ---- gateways

void Services::tell(const std::string& gateway) {
  world_.agenda.after(told_every, [this, gateway] {
    tell(gateway);
    if (!controller_.up() || !controller_.well()) return;
    if (!is_calm_ && prng_.chance(gateway_silent)) return;
    cluster::GatewayTold word = word_of(gateway);
    if (is_calm_) return send(std::move(word));
    if (prng_.chance(word_lost)) return;
    if (prng_.chance(word_twice)) send(word);
    if (!prng_.chance(word_late)) return send(std::move(word));
    world_.agenda.after(Duration(prng_.between(0, Duration(word_late_max).count())),
                        [this, word = std::move(word)] { send(word); });
  });
}

void Services::send(cluster::GatewayTold word) {
  if (controller_.up()) controller_.happen(std::move(word), [](const auto&) {});
}

// As it sees the replicas now; its counters only grow.
cluster::GatewayTold Services::word_of(const std::string& gateway) {
  cluster::GatewayTold word{gateway, "http://" + gateway, {}};
  for (const auto& [name, service] : controller_.state().services) {
    const cluster::Fleet& fleet = controller_.state().fleets.all.at(name);
    for (const std::int32_t version : {service.serving.number, service.next ? service.next->number : 0}) {
      if (version == 0) continue;
      const std::int32_t ready = cluster::ready_of(fleet, version);
      Counted& counted = counted_[{gateway, name, version}];
      const auto more = ready == 0 ? 0 : static_cast<std::uint64_t>(prng_.below(40));
      counted.requests += more;
      for (std::uint64_t at = 0; at < more && is_bad(service, version); ++at)
        counted.failures += prng_.chance(request_fails) ? 1U : 0U;
      cluster::ServiceTold told{
          .service = name, .version = version, .requests = counted.requests, .failures = counted.failures};
      // Somebody waits where nobody answers; else there is more to do at one time than at another.
      const bool is_serving = version == service.serving.number;
      if (is_serving && cluster::ready_of(fleet) == 0)
        told.waiting = is_calm_ || prng_.chance(0.5) ? 1 : 0;
      else if (ready > 0 && prng_.chance(0.3))
        told.running = prng_.between(0, 8);
      if (!is_calm_ && ready > 0 && prng_.chance(0.1)) told.waiting = prng_.between(0, 20);
      told.first_tokens.add(50ms, counted.requests);
      word.services.push_back(std::move(told));
    }
  }
  return word;
}

// ---- after the faults

std::string Services::not_answering() const {
  for (const auto& [name, service] : controller_.state().services) {
    const cluster::Fleet& fleet = controller_.state().fleets.all.at(name);
    const std::int32_t ready = cluster::ready_of(fleet);
    // One that never starts has no replica, whatever is done.
    const bool never_starts = !ready_after(service.serving.replica.command);
    if (never_starts) continue;
    if (ready < std::max(service.replicas_min, 1))
      return "service " + name + " has " + std::to_string(ready) + " replicas ready, and somebody waits: " +
             std::string(cluster::state_of(controller_.state(), service)) + ", " +
             cluster::reason_of(controller_.state(), service);
    if (service.next && service.canary_share == 0)
      return "service " + name + " is still being updated: " + service.last_change;
  }
  return "";
}

void Services::clean_up() {
  if (!controller_.well()) return;
  for (const auto& [name, service] : controller_.state().services)
    ask("stop " + name, cluster::StopService{name});
}

}  // namespace tutti::sim
