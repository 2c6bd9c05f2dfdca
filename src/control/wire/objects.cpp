#include "control/wire/objects.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "control/wire/convert.hpp"
#include "control/wire/membership.hpp"
#include "control/wire/messages.hpp"
#include "control/wire/runs.hpp"

namespace tutti::wire {
namespace {

constexpr std::string_view asked_prefix = "asked/";
constexpr std::string_view audit_prefix = "audit/";
constexpr std::string_view job_prefix = "job/";
constexpr std::string_view node_prefix = "node/";
constexpr std::string_view queue_prefix = "queue/";
constexpr std::string_view past_use_prefix = "used/";
constexpr std::string_view person_prefix = "person/";
constexpr std::string_view token_prefix = "token/";
constexpr std::string_view secret_prefix = "secret/";
constexpr std::string_view service_prefix = "service/";
constexpr std::string_view the_fabric = "fabric";
constexpr std::string_view the_cluster = "cluster";

Error damaged(std::string_view key) {
  return failed("the stored object is damaged").within(key).remedy("restore the store from a copy");
}

std::string numbered(std::string_view prefix, std::uint64_t number) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%020llu", static_cast<unsigned long long>(number));
  return std::string(prefix) + digits;
}

Result<std::uint64_t> number_behind(std::string_view prefix, std::string_view key) {
  const std::string_view digits = key.substr(prefix.size());
  return parse_id_number(digits.substr(std::min(digits.find_first_not_of('0'), digits.size())));
}

Result<cluster::JobSpec> spec_from(const cluster::State& state, const proto::StoredJob& from) {
  if (!from.spec_apart()) return from_proto(from.spec());
  const auto asked = state.asked.find(cluster::JobId(from.has_array() ? from.array().first() : from.id()));
  if (asked == state.asked.end()) return invalid("nobody has asked for it");
  cluster::JobSpec spec = asked->second;
  if (from.has_array()) {
    auto part = from_proto(from.array());
    if (!part) return std::move(part).error();
    spec.array = *part;
  }
  return spec;
}

Result<cluster::Job> job_from(const cluster::State& state, const proto::StoredJob& from) {
  auto spec = spec_from(state, from);
  if (!spec) return std::move(spec).error();
  if (from.state() < 0 || from.state() > 6 || from.ending() < 0 || from.ending() > 10)
    return invalid("no such state");
  cluster::Job to;
  to.id = cluster::JobId(from.id());
  to.spec = std::move(*spec);
  to.state = static_cast<cluster::JobState>(from.state());
  to.attempt = from.attempt();
  to.losses = from.losses();
  to.failures = from.failures();
  to.preemptions = from.preemptions();
  to.served = from.served();
  to.saved_at = Instant(Duration(from.saved_at_ns()));
  to.queued_at = Instant(Duration(from.queued_at_ns()));
  to.submitted_at = Instant(Duration(from.submitted_at_ns()));
  to.started_at = Instant(Duration(from.started_at_ns()));
  to.finished_at = Instant(Duration(from.finished_at_ns()));
  to.ended_at = Instant(Duration(from.ended_at_ns()));
  to.running_at = Instant(Duration(from.running_at_ns()));
  // An older tutti did not note it, and counted from then on.
  if (to.running_at == Instant() && to.state == cluster::JobState::running) to.running_at = to.started_at;
  to.told_at = Instant(Duration(from.told_at_ns()));
  to.witness = from.witness_rank() - 1;
  to.witness_since = Instant(Duration(from.witness_since_ns()));
  to.exit_code = from.exit_code();
  to.reason = from.reason();
  to.holds = from.holds();
  if (auto ranks = ranks_from_proto(from, to); !ranks) return std::move(ranks).error();
  to.master_port = from.master_port();
  to.ending = static_cast<cluster::EndCause>(from.ending());
  to.last_end = from.last_end();
  to.has_saved = from.has_saved();
  to.attempt_told = from.attempts_told() - 1;
  to.bad_ends = from.bad_ends();
  to.deadly_attempts = from.deadly_attempts();
  to.nodes_lost = from.nodes_lost();
  to.attempt_losses = from.attempt_losses();
  to.not_before = Instant(Duration(from.not_before_ns()));
  to.held = from.held();
  to.submit_key = from.submit_key();
  return to;
}

Result<cluster::Fabric> fabric_from(const proto::StoredFabric& from) {
  std::vector<cluster::Link> links;
  std::set<std::string> nodes;
  for (const auto& link : from.links()) {
    links.push_back({link.from(), link.to(), Duration(link.latency_ns()), Bytes(link.bandwidth_bytes_s()),
                     Instant(Duration(link.measured_at_ns()))});
    nodes.insert({link.from(), link.to()});
  }
  return cluster::make_fabric(links, nodes);
}

Result<people::Person> person_from(const proto::StoredPerson& from) {
  people::Person to{.name = from.name(),
                    .kind = from.service() ? people::Kind::service : people::Kind::person,
                    .grants = {},
                    .blocked = from.blocked(),
                    .made_at = Instant(Duration(from.made_at_ns())),
                    .login = from.login(),
                    .jobs_from = from.jobs_from()};
  for (const auto& grant : from.grants()) {
    auto read = from_proto(grant);
    if (!read) return std::move(read).error();
    to.grants.push_back(*std::move(read));
  }
  if (from.has_blocked_by()) {
    auto read = from_proto(from.blocked_by());
    if (!read) return std::move(read).error();
    to.blocked_by = *std::move(read);
  }
  return to;
}

Result<people::Token> token_from(const proto::StoredToken& from) {
  const auto role = people::role_named(from.role_max());
  if (!role || from.hash().empty()) return invalid("no such token");
  return people::Token{.id = from.id(),
                       .person = from.person(),
                       .hash = from.hash(),
                       .role_max = *role,
                       .queue = from.queue(),
                       .purpose = from.purpose(),
                       .made_at = Instant(Duration(from.made_at_ns())),
                       .expires_at = Instant(Duration(from.expires_at_ns())),
                       .used_at = Instant(Duration(from.used_at_ns()))};
}

cluster::SecretId secret_id_from(const proto::StoredSecret& from) {
  using Of = cluster::SecretId::Of;
  if (!from.service().empty()) return {Of::service, from.service(), from.name()};
  if (!from.queue().empty()) return {Of::queue, from.queue(), from.name()};
  return {Of::person, from.person(), from.name()};
}

Result<cluster::Secret> secret_from(const proto::StoredSecret& from) {
  cluster::Secret to{.id = secret_id_from(from),
                     .key = from.key(),
                     .sealed = from.sealed(),
                     .bytes = from.bytes(),
                     .changed_at = Instant(Duration(from.changed_at_ns())),
                     .changed_by = from.changed_by()};
  if (auto named = cluster::check_secret_name(to.id.name); !named) return std::move(named).error();
  if (to.id.owner.empty() || to.key.empty() || to.sealed.empty() || to.bytes < 1)
    return invalid("no such secret");
  return to;
}

Result<cluster::Version> version_from(const proto::StoredVersion& from) {
  auto replica = from_proto(from.replica());
  if (!replica) return std::move(replica).error();
  if (from.number() < 1 || from.bad_ends() < 0) return invalid("no such version");
  return cluster::Version{.number = from.number(),
                          .replica = *std::move(replica),
                          .bad_ends = from.bad_ends(),
                          .not_before = Instant(Duration(from.not_before_ns())),
                          .last_end = from.last_end()};
}

Result<cluster::Service> service_from(const proto::StoredService& from) {
  if (auto named = cluster::check_service_name(from.name()); !named) return std::move(named).error();
  auto serving = version_from(from.serving());
  if (!serving) return std::move(serving).error();
  cluster::Service to;
  to.name = from.name();
  to.serving = *std::move(serving);
  if (from.has_next()) {
    auto next = version_from(from.next());
    if (!next) return std::move(next).error();
    to.next = *std::move(next);
  }
  to.canary_share = from.canary_share();
  to.next_since = Instant(Duration(from.next_since_ns()));
  to.versions = from.versions();
  to.replicas_min = from.replicas_min();
  to.replicas_max = from.replicas_max();
  to.idle_time = Duration(from.idle_ns());
  to.target_ttft = Duration(from.target_ttft_ns());
  to.wanted = from.wanted();
  to.jobs_from = from.jobs_from();
  to.made_at = Instant(Duration(from.made_at_ns()));
  to.changed_at = Instant(Duration(from.changed_at_ns()));
  to.last_change = from.last_change();
  return to;
}

void fill_version(const cluster::Version& from, proto::StoredVersion& to) {
  to.set_number(from.number);
  to_proto(from.replica, *to.mutable_replica());
  to.set_bad_ends(from.bad_ends);
  to.set_not_before_ns(from.not_before.time_since_epoch().count());
  to.set_last_end(from.last_end);
}

std::string_view word_of(cluster::SecretId::Of of) {
  switch (of) {
    case cluster::SecretId::Of::person:
      return "person ";
    case cluster::SecretId::Of::queue:
      return "queue ";
    case cluster::SecretId::Of::service:
      return "service ";
  }
  return "";
}

}  // namespace

// Neither the name of a secret nor the words before it have a space, whatever somebody is called.
std::string secret_key(const cluster::SecretId& id) {
  return std::string(secret_prefix) + std::string(word_of(id.of)) + id.owner + " " + id.name;
}

std::string service_key(const cluster::ServiceName& name) { return std::string(service_prefix) + name; }

std::string job_key(cluster::JobId id) { return numbered(job_prefix, id.number()); }

std::string asked_key(cluster::JobId first) { return numbered(asked_prefix, first.number()); }

std::string audit_key(std::uint64_t first) { return numbered(audit_prefix, first); }

std::string node_key(const std::string& name) { return std::string(node_prefix) + name; }

std::string queue_key(const std::string& name) { return std::string(queue_prefix) + name; }

std::string person_key(const people::Name& name) { return std::string(person_prefix) + name; }

std::string token_key(const people::TokenId& id) { return std::string(token_prefix) + id; }

std::string fabric_key() { return std::string(the_fabric); }

std::string cluster_key() { return std::string(the_cluster); }

// The name of a queue has no space.
std::string past_use_key(const cluster::QueueUser& who) {
  return std::string(past_use_prefix) + who.first + " " + who.second;
}

std::string encode(const cluster::QueueUser& who, const cluster::PastUse& past) {
  proto::StoredPastUse to;
  to.set_queue(who.first);
  to.set_user(who.second);
  to.set_device_seconds(past.amount);
  to.set_at_ns(past.at.time_since_epoch().count());
  return to.SerializeAsString();
}

std::string encode(const cluster::Job& job) {
  proto::StoredJob to;
  to.set_id(job.id.number());
  to.set_spec_apart(true);
  if (job.spec.array) to_proto(*job.spec.array, *to.mutable_array());
  to.set_state(static_cast<std::int32_t>(job.state));
  to.set_attempt(job.attempt);
  to.set_losses(job.losses);
  to.set_failures(job.failures);
  to.set_preemptions(job.preemptions);
  to.set_served(job.served);
  to.set_saved_at_ns(job.saved_at.time_since_epoch().count());
  to.set_queued_at_ns(job.queued_at.time_since_epoch().count());
  to.set_submitted_at_ns(job.submitted_at.time_since_epoch().count());
  to.set_started_at_ns(job.started_at.time_since_epoch().count());
  to.set_finished_at_ns(job.finished_at.time_since_epoch().count());
  to.set_ended_at_ns(job.ended_at.time_since_epoch().count());
  to.set_running_at_ns(job.running_at.time_since_epoch().count());
  to.set_told_at_ns(job.told_at.time_since_epoch().count());
  to.set_witness_rank(job.witness + 1);
  to.set_witness_since_ns(job.witness_since.time_since_epoch().count());
  to.set_exit_code(job.exit_code);
  to.set_reason(job.reason);
  to.set_holds(job.holds);
  ranks_to_proto(job, to);
  to.set_master_port(job.master_port);
  to.set_ending(static_cast<std::int32_t>(job.ending));
  to.set_last_end(job.last_end);
  to.set_has_saved(job.has_saved);
  to.set_attempts_told(job.attempt_told + 1);
  to.set_bad_ends(job.bad_ends);
  to.set_deadly_attempts(job.deadly_attempts);
  to.set_nodes_lost(job.nodes_lost);
  to.set_attempt_losses(job.attempt_losses);
  to.set_not_before_ns(job.not_before.time_since_epoch().count());
  to.set_held(job.held);
  to.set_submit_key(job.submit_key);
  return to.SerializeAsString();
}

std::string encode_asked(const cluster::JobSpec& spec) {
  proto::JobSpec to;
  to_proto(spec, to);
  to.clear_array();
  return to.SerializeAsString();
}

std::string encode(const cluster::Node& node) {
  proto::StoredNode to;
  to.set_name(node.name);
  to.set_location(node.location);
  to.set_address(node.address);
  to.set_agent_pid(node.agent_pid);
  to_proto(node.inventory, *to.mutable_inventory());
  to.set_draining(node.draining);
  to.set_lost(node.lost);
  to.set_fault(node.fault);
  to.set_faults(node.faults);
  to.set_times_set_aside(node.times_set_aside);
  to.set_back_at_ns(node.back_at.time_since_epoch().count());
  to.set_identity(node.identity);
  to.set_lost_at_ns(node.lost_at.time_since_epoch().count());
  return to.SerializeAsString();
}

std::string encode(const cluster::Queue& queue) {
  proto::StoredQueue to;
  to.set_name(queue.name);
  to.set_guarantee(queue.guarantee);
  to.set_limit(queue.limit);
  to.set_user_limit(queue.user_limit);
  to.set_weight(queue.weight);
  if (queue.priority_max != cluster::priority_max) to.set_priority_max(queue.priority_max);
  to.set_jobs_from(queue.jobs_from);
  return to.SerializeAsString();
}

std::string encode(const people::Person& person) {
  proto::StoredPerson to;
  to.set_name(person.name);
  to.set_service(person.kind == people::Kind::service);
  for (const people::Grant& grant : person.grants) to_proto(grant, *to.add_grants());
  to.set_blocked(person.blocked);
  to.set_made_at_ns(person.made_at.time_since_epoch().count());
  to.set_login(person.login);
  to.set_jobs_from(person.jobs_from);
  if (person.blocked) to_proto(person.blocked_by, *to.mutable_blocked_by());
  return to.SerializeAsString();
}

std::string encode(const people::Token& token) {
  proto::StoredToken to;
  to.set_id(token.id);
  to.set_person(token.person);
  to.set_hash(token.hash);
  to.set_role_max(std::string(people::name_of(token.role_max)));
  to.set_queue(token.queue);
  to.set_purpose(token.purpose);
  to.set_made_at_ns(token.made_at.time_since_epoch().count());
  to.set_expires_at_ns(token.expires_at.time_since_epoch().count());
  to.set_used_at_ns(token.used_at.time_since_epoch().count());
  return to.SerializeAsString();
}

std::string encode(const cluster::Secret& secret) {
  proto::StoredSecret to;
  to.set_name(secret.id.name);
  using Of = cluster::SecretId::Of;
  if (secret.id.of == Of::queue) to.set_queue(secret.id.owner);
  if (secret.id.of == Of::person) to.set_person(secret.id.owner);
  if (secret.id.of == Of::service) to.set_service(secret.id.owner);
  to.set_key(secret.key);
  to.set_sealed(secret.sealed);
  to.set_bytes(secret.bytes);
  to.set_changed_at_ns(secret.changed_at.time_since_epoch().count());
  to.set_changed_by(secret.changed_by);
  return to.SerializeAsString();
}

std::string encode(const cluster::Service& service) {
  proto::StoredService to;
  to.set_name(service.name);
  fill_version(service.serving, *to.mutable_serving());
  if (service.next) fill_version(*service.next, *to.mutable_next());
  to.set_canary_share(service.canary_share);
  to.set_next_since_ns(service.next_since.time_since_epoch().count());
  to.set_versions(service.versions);
  to.set_replicas_min(service.replicas_min);
  to.set_replicas_max(service.replicas_max);
  to.set_idle_ns(service.idle_time.count());
  to.set_target_ttft_ns(service.target_ttft.count());
  to.set_wanted(service.wanted);
  to.set_jobs_from(service.jobs_from);
  to.set_made_at_ns(service.made_at.time_since_epoch().count());
  to.set_changed_at_ns(service.changed_at.time_since_epoch().count());
  to.set_last_change(service.last_change);
  return to.SerializeAsString();
}

std::string encode(const cluster::Fabric& fabric) {
  proto::StoredFabric to;
  for (const auto& [ends, link] : fabric) {
    auto* added = to.add_links();
    added->set_from(link.from);
    added->set_to(link.to);
    added->set_latency_ns(link.latency.count());
    added->set_bandwidth_bytes_s(link.bandwidth.count());
    added->set_measured_at_ns(link.measured_at.time_since_epoch().count());
  }
  return to.SerializeAsString();
}

std::string encode_cluster(const cluster::State& state) {
  proto::StoredCluster to;
  to.set_id(state.cluster_id);
  to.set_next_job(state.next_job);
  to.set_boot(state.clock.boot);
  to.set_clock_offset_ns(state.clock.offset.count());
  to.set_there_at_ns(state.there_at.time_since_epoch().count());
  to.set_secret_key(state.secret_key);
  return to.SerializeAsString();
}

Result<> decode_into(cluster::State& state, std::string_view key, std::string_view bytes) {
  const int size = static_cast<int>(bytes.size());
  if (key.starts_with(job_prefix)) {
    proto::StoredJob from;
    if (!from.ParseFromArray(bytes.data(), size)) return damaged(key);
    auto job = job_from(state, from);
    if (!job) return damaged(key);
    const cluster::JobId id = job->id;
    if (!from.spec_apart()) state.stored_whole.insert(id);
    state.jobs.insert_or_assign(id, std::move(*job));
    return {};
  }
  if (key.starts_with(asked_prefix)) {
    proto::JobSpec from;
    const auto number = number_behind(asked_prefix, key);
    if (!number || !from.ParseFromArray(bytes.data(), size)) return damaged(key);
    auto spec = from_proto(from);
    if (!spec) return damaged(key);
    state.asked.insert_or_assign(cluster::JobId(*number), std::move(*spec));
    return {};
  }
  if (key.starts_with(audit_prefix)) {
    const auto first = number_behind(audit_prefix, key);
    auto head = cluster::audit_head_of_lines(bytes);
    if (!first || !head) return damaged(key);
    state.audit.head = *std::move(head);
    cluster::add_audit_lines(state.audit, *first, std::string(bytes));
    return {};
  }
  if (key == the_fabric) {
    proto::StoredFabric from;
    if (!from.ParseFromArray(bytes.data(), size)) return damaged(key);
    auto fabric = fabric_from(from);
    if (!fabric) return damaged(key);
    state.fabric = std::make_shared<const cluster::Fabric>(std::move(*fabric));
    return {};
  }
  if (key == the_cluster) {
    proto::StoredCluster from;
    if (!from.ParseFromArray(bytes.data(), size) || !is_cluster_id(from.id())) return damaged(key);
    state.cluster_id = from.id();
    state.next_job = std::max<std::uint64_t>(state.next_job, from.next_job());
    state.clock = {from.boot(), Duration(from.clock_offset_ns())};
    state.there_at = Instant(Duration(from.there_at_ns()));
    state.secret_key = from.secret_key();
    return {};
  }
  if (key.starts_with(past_use_prefix)) {
    proto::StoredPastUse from;
    if (!from.ParseFromArray(bytes.data(), size)) return damaged(key);
    state.past_use[{from.queue(), from.user()}] = {from.device_seconds(), Instant(Duration(from.at_ns()))};
    return {};
  }
  if (key.starts_with(person_prefix)) {
    proto::StoredPerson from;
    if (!from.ParseFromArray(bytes.data(), size)) return damaged(key);
    auto person = person_from(from);
    if (!person) return damaged(key);
    state.people.persons.insert_or_assign(from.name(), *std::move(person));
    return {};
  }
  if (key.starts_with(token_prefix)) {
    proto::StoredToken from;
    if (!from.ParseFromArray(bytes.data(), size)) return damaged(key);
    auto token = token_from(from);
    if (!token) return damaged(key);
    people::add(state.people, *std::move(token));
    return {};
  }
  if (key.starts_with(secret_prefix)) {
    proto::StoredSecret from;
    if (!from.ParseFromArray(bytes.data(), size)) return damaged(key);
    auto secret = secret_from(from);
    if (!secret) return damaged(key);
    cluster::SecretId id = secret->id;
    state.secrets.insert_or_assign(std::move(id), *std::move(secret));
    return {};
  }
  if (key.starts_with(service_prefix)) {
    proto::StoredService from;
    if (!from.ParseFromArray(bytes.data(), size)) return damaged(key);
    auto service = service_from(from);
    if (!service) return damaged(key);
    state.services.insert_or_assign(from.name(), *std::move(service));
    return {};
  }
  if (key.starts_with(queue_prefix)) {
    proto::StoredQueue from;
    if (!from.ParseFromArray(bytes.data(), size)) return damaged(key);
    cluster::Queue queue{from.name(), from.guarantee(), from.limit(), from.user_limit(), from.weight()};
    if (from.has_priority_max()) queue.priority_max = from.priority_max();
    queue.jobs_from = from.jobs_from();
    state.queues.insert_or_assign(from.name(), std::move(queue));
    return {};
  }
  if (is_of_membership(key))
    return decode_membership(state, key, bytes) ? Result<>() : Result<>(damaged(key));
  proto::StoredNode from;
  if (!key.starts_with(node_prefix) || !from.ParseFromArray(bytes.data(), size)) return damaged(key);
  auto inventory = from_proto(from.inventory());
  if (!inventory) return damaged(key);
  cluster::Node node;
  node.name = from.name();
  node.location = from.location();
  node.address = from.address();
  node.agent_pid = from.agent_pid();
  node.inventory = std::move(*inventory);
  node.draining = from.draining();
  node.lost = from.lost();
  node.fault = from.fault();
  node.faults = from.faults();
  node.times_set_aside = from.times_set_aside();
  node.back_at = Instant(Duration(from.back_at_ns()));
  node.identity = from.identity();
  node.lost_at = Instant(Duration(from.lost_at_ns()));
  state.nodes.insert_or_assign(from.name(), std::move(node));
  return {};
}

}  // namespace tutti::wire
