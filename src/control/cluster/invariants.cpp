#include "control/cluster/step.hpp"

namespace tutti::cluster {
namespace {

Error broken(const Job& job, const std::string& what) { return failed("job " + job.id.text() + ": " + what); }

Result<> check_job(const State& state, const Job& job) {
  const bool whole = sched::runs_with(job.spec.shape, job.places.size());
  const bool running = job.state == JobState::starting || job.state == JobState::running;
  if (job.placed() && !whole) return broken(job, "half a gang is placed");
  if (job.placed() && job.places.size() != job.ranks.size()) return broken(job, "ranks without a place");
  if (job.finished() && job.placed()) return broken(job, "a finished job holds devices");
  if (!job.held.empty() && job.placed()) return broken(job, "it is held and holds devices");
  if (running && !job.placed()) return broken(job, "it runs nowhere");
  if (job.finished() == state.active.contains(job.id)) return broken(job, "the set of active jobs is wrong");
  if (job.placed() != state.holding.contains(job.id)) return broken(job, "the set of holding jobs is wrong");
  const bool held_back =
      !job.finished() && (!job.held.empty() || job.not_before != Instant() || !job.too_small.empty());
  if (held_back != state.held_back.contains(job.id))
    return broken(job, "the set of jobs that are held back is wrong");
  for (const RankPlace& place : job.places) {
    if (job.placed() && !state.nodes.contains(place.node))
      return broken(job, "it is placed on an unknown node");
  }
  if (!job.placed()) return {};
  const auto tally = state.tallies.find(job.id);
  if (tally == state.tallies.end() || tally->second != tally_of(job))
    return broken(job, "its ranks are counted wrong");
  return {};
}

Result<> check_held(const State& state) {
  JobBytes fresh;
  Shares unfinished;
  for (const auto& [id, job] : state.jobs) {
    fresh.comes(job);
    if (job.finished()) fresh.ends(job);
    if (!job.finished()) unfinished.add(job.spec.user, 1);
  }
  if (unfinished != state.unfinished) return failed("the unfinished jobs of users are counted wrong");
  if (fresh != state.bytes) return failed("the bytes of the jobs are counted wrong");
  return {};
}

Result<> check_fabric(const State& state) {
  for (const auto& [ends, link] : *state.fabric) {
    const std::string name = "the link from " + link.from + " to " + link.to;
    if (ends != std::pair(link.from, link.to)) return failed(name + " is stored as another one");
    if (!state.nodes.contains(link.from) || !state.nodes.contains(link.to))
      return failed(name + " joins an unknown node");
  }
  return {};
}

Result<> check_members(const State& state) {
  for (const auto& [id, token] : state.join_tokens) {
    if (id != token.id || token.uses_left < 0) return failed("the token " + id + " has been used too often");
  }
  for (const auto& [name, member] : state.members) {
    if (name != member.name || member.key.empty())
      return failed("node " + name + " has the certificate of nobody");
  }
  return {};
}

// Whoever is gone has left none behind, for whoever is called so next; and none of them is in the clear, as
// far as that can be told: sealing makes it longer.
Result<> check_secrets(const State& state) {
  for (const auto& [id, secret] : state.secrets) {
    const std::string name = "the secret " + text_of(id);
    if (id != secret.id) return failed(name + " is stored as another one");
    if (secret.key.empty() || secret.bytes < 1 ||
        secret.sealed.size() <= static_cast<std::size_t>(secret.bytes))
      return failed(name + " is not sealed");
    if (id.of == SecretId::Of::queue && !state.queues.contains(id.owner))
      return failed(name + " is of a queue that does not exist");
    if (id.of == SecretId::Of::service && !state.services.contains(id.owner))
      return failed(name + " is of a service that does not exist");
  }
  if (!state.secrets.empty() && state.secret_key.empty())
    return failed("there are secrets, and no key that new ones are sealed under");
  return {};
}

Result<> check_service(const State& state, const Service& service) {
  const std::string name = "the service " + service.name;
  if (!state.queues.contains(service.queue())) return failed(name + " is in a queue that does not exist");
  if (service.wanted < service.replicas_min || service.wanted > service.replicas_max)
    return failed(name + " wants more or fewer replicas than it may have");
  if (service.next &&
      (service.next->number == service.serving.number || service.next->replica.user != service.user() ||
       service.next->replica.queue != service.queue()))
    return failed(name + " has a next version that is none");
  if (service.canary_share > 0 && !service.next) return failed(name + " has a canary that is not there");
  if (service.serving.number > service.versions || (service.next && service.next->number > service.versions))
    return failed(name + " has a version whose number was not given out");
  if (!state.secrets.contains({SecretId::Of::service, service.name, std::string(engine_key_name)}))
    return failed(name + " has no key");
  return {};
}

// What is derived of them is as it would be made anew; and no replica runs on whose service is gone.
Result<> check_services(const State& state) {
  std::map<ServiceName, std::map<JobId, std::pair<std::int32_t, std::int32_t>>> replicas;
  for (const auto& [name, service] : state.services) {
    if (name != service.name) return failed("the service " + name + " is stored as another one");
    if (auto checked = check_service(state, service); !checked) return checked;
    replicas[name];
  }
  for (const JobId id : state.active) {
    const Job& job = state.jobs.at(id);
    if (!job.spec.service) continue;
    const bool ends = job.ending == EndCause::cancelled || job.ending == EndCause::killed;
    if (const Service* service = service_of(state, job)) {
      replicas[service->name][id] = {job.spec.service->version, ready_port(job).value_or(0)};
    } else if (!job.placed() || !ends) {
      return broken(job, "it is a replica of a service that is gone, and goes on");
    }
  }
  if (replicas.size() != state.fleets.all.size())
    return failed("there are replicas of services that are gone");
  for (const auto& [name, jobs] : replicas) {
    const auto fleet = state.fleets.all.find(name);
    if (fleet == state.fleets.all.end()) return failed("the replicas of " + name + " are not known");
    std::map<JobId, std::pair<std::int32_t, std::int32_t>> known;
    for (const auto& [id, replica] : fleet->second.replicas) known[id] = {replica.version, replica.port};
    if (known != jobs) return failed("the replicas of " + name + " are known wrong");
  }
  return {};
}

}  // namespace

Result<> invariants(const State& state) {
  std::map<std::pair<NodeName, std::int32_t>, std::int64_t> shares;
  std::size_t active = 0;
  std::size_t holding = 0;
  for (const auto& [id, job] : state.jobs) {
    if (auto checked = check_job(state, job); !checked) return checked;
    if (!job.finished()) ++active;
    if (!job.placed()) continue;
    ++holding;
    for (const RankPlace& place : job.places) {
      for (const auto& device : place.devices) {
        if ((shares[std::pair(place.node, device.device)] += device.share) > sched::whole_share) {
          return broken(job, "device " + std::to_string(device.device) + " of node " + place.node +
                                 " is given out twice");
        }
      }
    }
  }
  if (active != state.active.size() || holding != state.holding.size() || holding != state.tallies.size())
    return failed("there are jobs in the sets of active and holding jobs that do not exist");
  if (state.ended.jobs() != state.jobs.size() - active)
    return failed("there are finished jobs in the set of ended ones that do not exist, or some are missing");
  if (auto checked = state.index.check(state); !checked) return checked;
  if (auto checked = check_held(state); !checked) return checked;
  if (auto checked = check_members(state); !checked) return checked;
  if (auto checked = check_secrets(state); !checked) return checked;
  if (auto checked = check_services(state); !checked) return checked;
  return check_fabric(state);
}

}  // namespace tutti::cluster
