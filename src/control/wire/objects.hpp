// Jobs, nodes and links as the store keeps them, and as the REST API shows them. Pure functions: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "control/cluster/step.hpp"
#include "control/sched/explain.hpp"

namespace tutti::wire {

// ---- the store

std::string job_key(cluster::JobId id);          // "job/00000000000000000042": keys sort as ids do
std::string node_key(const std::string& name);   // "node/n1"
std::string queue_key(const std::string& name);  // "queue/research/vision"
std::string fabric_key();                        // "fabric": all links are one object
std::string encode(const cluster::Job& job);
std::string encode(const cluster::Node& node);
std::string encode(const cluster::Queue& queue);
std::string encode(const cluster::Fabric& fabric);
// Adds one stored object to the state; unknown keys are an error.
Result<> decode_into(cluster::State& state, std::string_view key, std::string_view bytes);

// ---- REST, as JSON

std::string job_json(const cluster::State& state, const cluster::Job& job, bool detailed);
std::string node_json(const cluster::State& state, const cluster::Node& node);
std::string nodes_json(const cluster::State& state);
std::string queues_json(const cluster::State& state, Instant now);
// Of a job that waits, or of one that is not submitted, whose id and state are "".
std::string explain_json(const sched::Explanation& explanation, const std::string& id,
                         const std::string& state);
// Of a job that runs or has ended: there is nothing to explain but that.
std::string explain_json(const cluster::State& state, const cluster::Job& job);
std::string fabric_json(const cluster::Fabric& fabric);

struct JobQuery {
  bool all = false;          // finished ones too
  std::uint64_t array = 0;   // only elements of this job's array; 0: all jobs
  std::uint64_t before = 0;  // only ids below this one; 0: from the newest
  std::size_t limit = 100;
};
Result<std::string> jobs_json(const cluster::State& state, const JobQuery& query);

struct StoreHealth {
  bool ok = true;
  std::string error;
};
std::string status_json(const cluster::State& state, const StoreHealth& health, std::string_view version);

Result<std::vector<cluster::JobSpec>> decode_submit(std::string_view json);
// Refuses what is not UTF-8, which JSON cannot carry.
Result<std::string> encode_submit(const std::vector<cluster::JobSpec>& specs);
std::string submitted_json(const std::vector<cluster::JobId>& ids);
Result<std::vector<std::string>> decode_submitted(std::string_view json);
Result<bool> decode_drain(std::string_view json);
// Numbers in range; whether they fit those of other queues is for the cluster to say.
Result<cluster::SetQueue> decode_queue(const std::string& name, std::string_view json);
// Links with names and numbers in range; whether there are such nodes is for the cluster to say.
Result<std::vector<cluster::Link>> decode_fabric(std::string_view json);

std::string error_json(const Error& error);
// The error that an answer with a status of 400 or more carries.
Error decode_error(int status, std::string_view json);

}  // namespace tutti::wire
