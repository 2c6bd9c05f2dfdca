// The cluster as the REST API shows it, in JSON: what goes out. Each subject has a file of its own,
// view_SUBJECT.cpp. Pure functions: any thread.
#pragma once

#include <bitset>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/step.hpp"
#include "control/people/may.hpp"
#include "control/sched/explain.hpp"

namespace tutti::wire {

std::string job_json(const cluster::State& state, const cluster::Job& job, bool detailed);
std::string node_json(const cluster::State& state, const cluster::Node& node);
// Of one that is gone.
std::string removed_node_json(const std::string& name);

struct NodeQuery {
  std::string after;  // only names behind this one; "": from the first
  std::size_t limit = 1000;
};
std::string nodes_json(const cluster::State& state, const NodeQuery& query);

// A page of users, or of their tokens, by their names. It ends sooner than at its limit where many were
// looked at, or have much: the loop that answers has other things to do.
struct PeopleQuery {
  std::string after = {};    // only users behind this one; "": from the first
  std::size_t limit = 1000;  // users or tokens; all tokens of one user are on one page
  std::function<bool(const people::Person&)> shows = nullptr;  // only those of whom this is true; null: all
};
std::string people_json(const cluster::State& state, const PeopleQuery& query);
std::string tokens_json(const cluster::State& state, Instant now, const PeopleQuery& query);
std::string whoami_json(const people::Caller& caller);
// Of a new one: the only time that the token itself is told.
std::string new_token_json(const people::Token& token, const std::string& secret);

// A page of secrets, without their values: those of people first, by owner and name.
struct SecretQuery {
  std::string after = {};  // the `next` of the page before; "": from the first
  std::size_t limit = 1000;
  std::string error = {};                                         // why they cannot be opened; "": they can
  std::function<bool(const cluster::SecretId&)> shows = nullptr;  // null: all
};
std::string secrets_json(const cluster::State& state, const SecretQuery& query);
std::string secret_key_json(const std::string& key);

// A page of services, by their names.
struct ServiceQuery {
  std::string after = {};  // only names behind this one; "": from the first
  std::size_t limit = 1000;
  std::function<bool(const cluster::Service&)> shows =
      nullptr;  // only those of which this is true; null: all
};
std::string services_json(const cluster::State& state, const ServiceQuery& query);
// With its replicas, and what is asked of it.
std::string service_json(const cluster::State& state, const cluster::Service& service);
// What gateways are to know; `known` is the revision that they know already. The key of a service comes from
// `open`, "" where it cannot be had.
std::string routes_json(const cluster::State& state, const std::string& known,
                        const std::function<std::string(const cluster::Secret&)>& open);
std::string gateways_json(const cluster::State& state);

// All of them with their totals; who uses what of those that he sees.
std::string queues_json(const cluster::State& state, Instant now, const people::Caller& caller);
// Of a job that waits, or of one that is not submitted, whose id and state are "".
std::string explain_json(const sched::Explanation& explanation, const std::string& id,
                         const std::string& state);
// Of a job that runs or has ended: there is nothing to explain but that.
std::string explain_json(const cluster::State& state, const cluster::Job& job);
std::string fabric_json(const cluster::Fabric& fabric);

// States of jobs by their numbers in cluster::state_names, and behind them: ending. None: all.
using StateSet = std::bitset<cluster::state_names.size() + 1>;
// "running,queued"; an error if there is no such state.
Result<StateSet> parse_states(std::string_view states);

struct JobQuery {
  bool all = false;          // finished ones too
  std::uint64_t array = 0;   // only elements of this job's array; 0: all jobs
  std::uint64_t before = 0;  // only ids below this one; 0: from the newest
  std::size_t limit = 100;
  // Only those of which this is true; "" and no state are true of all.
  StateSet states = {};
  std::string user = {};
  std::string queue = {};                                    // or a part of it
  std::string name = {};                                     // a part of it
  std::function<bool(const cluster::Job&)> shows = nullptr;  // null: all
};
Result<std::string> jobs_json(const cluster::State& state, const JobQuery& query);

// Some lines of the audit log, as they were written.
struct AuditPage {
  std::vector<std::string> lines;
  std::uint64_t next = 0;   // after which the next page goes on; 0: this is the last one
  cluster::AuditHead head;  // where the log ends now
};
std::string audit_json(const AuditPage& page);

struct StoreHealth {
  bool ok = true;
  std::string error;
  bool state_is_stored = true;  // false: what is in memory may be more than that, and nobody is shown it
};
// What is kept of what is over, and the room that it takes.
struct Kept {
  cluster::Retention retention;
  Bytes store;
  Bytes blobs;
  Bytes blobs_max;
  Duration blobs_age_max{};
  Bytes audit = {};
  Bytes audit_max = {};
  Duration audit_age_max{};
};
// For people: "" of what is well.
struct StatusTroubles {
  std::string secrets = {};    // why they cannot be opened
  std::string authority = {};  // that it ends soon
};
std::string status_json(const cluster::State& state, const StoreHealth& health, std::string_view version,
                        const Kept& kept, const StatusTroubles& troubles = {});

}  // namespace tutti::wire
