// Services: models that are served by replicas behind gateways. What is durable of one, and what its replicas
// and the gateways say of it, which is not. A replica is a job of one rank like any other; how many there
// are, of which version, is what tending a service comes to (tend.cpp). Values; owned by the state's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "base/time.hpp"
#include "control/cluster/job_spec.hpp"
#include "control/cluster/judge.hpp"
#include "control/cluster/scaling.hpp"

namespace tutti::cluster {

struct Job;
struct Node;
struct State;

using ServiceName = std::string;

constexpr std::size_t service_name_bytes_max = 64;
constexpr std::size_t services_max = 10'000;
constexpr std::size_t services_of_one_max = 1'000;  // of one user
constexpr std::int32_t replicas_max = 1'000;        // of one service
constexpr Duration idle_time_default = std::chrono::minutes(10);
constexpr Duration idle_time_max = std::chrono::hours(24 * 30);
constexpr Duration target_ttft_max = std::chrono::hours(1);
constexpr std::int32_t share_of_all = 1'000;  // shares of requests are thousandths of them
// Replicas that end by themselves wait as jobs do that end badly (restart_pause), until one has been ready
// for so long.
constexpr Duration replica_stable = 1min;
// So many of a new version in a row that end before they are ready, and it is given up.
constexpr std::int32_t version_bad_ends_max = 3;
// An old replica makes room for a new one that has waited for so long.
constexpr Duration update_room_time = 30s;
// A service that cannot start a replica is tried again so often.
constexpr Duration replica_tried_every = 5s;
// Of one Tend: services, and replicas of theirs that were looked at or started.
constexpr std::size_t services_per_step_max = 1'000;
constexpr std::size_t replicas_per_step_max = 20'000;
constexpr std::size_t replicas_started_per_step_max = 200;  // of one service

constexpr std::size_t gateways_max = 100;
constexpr std::size_t gateway_id_bytes_max = 64;
constexpr std::size_t gateway_url_bytes_max = 256;
constexpr std::size_t told_services_max = 2 * services_max;
// What a gateway has said is forgotten when it has said nothing for so long.
constexpr Duration gateway_time_max = 10s;
constexpr std::int64_t told_requests_max = 1'000'000'000;  // that wait or run, of one gateway
// What first tokens took lately goes back so far, and at most twice as far.
constexpr Duration lately = 10s;

// The secret that replicas of a service get without asking for it, and gateways show them.
constexpr std::string_view engine_key_name = "engine.key";
constexpr std::size_t engine_key_bytes = 32;

// What a service serves, as a number that no other version of it had.
struct Version {
  std::int32_t number = 0;
  JobSpec replica;
  std::int32_t bad_ends = 0;  // of replicas, in a row
  Instant not_before;         // none is started before
  std::string last_end = {};  // why the last of these ended

  friend bool operator==(const Version&, const Version&) = default;
};

// "version 2"
std::string text_of(const Version& version);

struct Service {
  ServiceName name;
  Version serving;
  std::optional<Version> next;    // that is to take its place
  std::int32_t canary_share = 0;  // of requests, for the next one; 0: it just takes its place
  Instant next_since;             // when it came
  std::int32_t versions = 0;      // numbers that were given out
  std::int32_t replicas_min = 1;
  std::int32_t replicas_max = 1;
  Duration idle_time{};         // without a request, after which there is none; only where the least is 0
  Duration target_ttft{};       // for first tokens; zero: there is none
  std::int32_t wanted = 0;      // replicas now, beside those of a canary
  std::uint64_t jobs_from = 0;  // those before are of one of its name that is gone
  Instant made_at;
  Instant changed_at;
  std::string last_change;  // with its numbers: why it was scaled, promoted, rolled back

  const QueueName& queue() const { return serving.replica.queue; }
  const std::string& user() const { return serving.replica.user; }

  friend bool operator==(const Service&, const Service&) = default;
};

// ---- what is derived, or told anew by whoever it comes from

struct Replica {
  std::int32_t version = 0;
  std::int32_t port = 0;     // where it answers; 0: it is not ready
  Instant ready_since;       // or was the last time
  Duration was_ready_for{};  // then

  friend bool operator==(const Replica&, const Replica&) = default;
};

// What a gateway says of one version of a service. Counters are of all its time.
struct ServiceTold {
  ServiceName service;
  std::int32_t version = 0;
  std::uint64_t requests = 0;
  std::uint64_t failures = 0;
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  double cache_used = 0;
  Latencies first_tokens = {};
};

struct Gateway {
  std::string url;
  Instant heard_at;
  std::set<ServiceName> services;  // of which it has said something
};

// What belongs to a service and is not stored.
struct Fleet {
  std::map<JobId, Replica> replicas;  // that have not ended
  // By gateway and version.
  std::map<std::pair<std::string, std::int32_t>, ServiceTold> told;
  std::map<std::int32_t, Seen> seen;  // by version, since the next one came
  Latencies lately;                   // first tokens of all versions, since lately_since
  Latencies before;                   // those of the time before that
  Instant lately_since;
  ScaleMemory memory;
  std::string trouble;    // why no replica can be started; "": nothing is in the way
  Instant tried_at;       // when that was
  Instant no_room_since;  // since when a new version waits for room; zero: it does not
  std::string waits_for;  // what the judge waits for
  Instant alarm;          // when it is tended although nothing happens; zero: never
  Instant next_alarm;     // the same, as this look has it so far
};

// All that is derived of services. In step with the state by touch() of a job, and by derive() after a load.
struct Fleets {
  std::map<ServiceName, Fleet> all;  // of each service one
  std::map<std::string, Gateway> gateways;
  std::set<ServiceName> due;  // to be tended
  ServiceName tended;         // last
  std::set<std::pair<Instant, ServiceName>> alarms;
  std::uint64_t changes = 0;  // counts what gateways are to know of
};

// Of a service, by all its gateways.
Demand demand_of(const State& state, const Fleet& fleet);
// How many of its replicas are ready, of that version or (0) of all.
std::int32_t ready_of(const Fleet& fleet, std::int32_t version = 0);

// Letters, digits, '-', '_' and '.', a letter or a digit first: it is the name of a model, and of a page.
Result<> check_service_name(std::string_view name);

// Where the replica answers, as it says itself ("ready PORT"); nothing if it is not ready, or is none.
std::optional<std::int32_t> ready_port(const Job& job);

// Is it a replica of that service that should be there? Not one of another of its name, nor one that ends.
bool is_replica(const Service& service, const Job& job);
// Of which it is one; null if there is none any more.
const Service* service_of(const State& state, const Job& job);
// Text that changes with what routes to replicas say, and is another one after each load.
std::string routes_revision(const State& state);
// Beside `wanted` replicas, so many of a canary.
std::int32_t canary_replicas(std::int32_t wanted, std::int32_t share);

// What is derived of all jobs and services after a load, and of one replica after a change.
void derive_fleets(State& state, Instant now);
void derive_replica(State& state, const Job& job, Instant now);

// "ready", "starting", "asleep", "updating", "canary", "waiting", and why in words; "" where all is said.
std::string_view state_of(const State& state, const Service& service);
std::string reason_of(const State& state, const Service& service);

}  // namespace tutti::cluster
