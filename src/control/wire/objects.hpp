// Jobs, nodes, queues and links as the store keeps them. Pure functions: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "control/cluster/step.hpp"

namespace tutti::wire {

std::string job_key(cluster::JobId id);  // "job/00000000000000000042": keys sort as ids do
// What was asked for, apart from what becomes of it, so that a change of state writes little: the job's own
// id or that of its array's first element. Comes before all jobs.
std::string asked_key(cluster::JobId first);              // "asked/00000000000000000042"
std::string node_key(const std::string& name);            // "node/n1"
std::string queue_key(const std::string& name);           // "queue/research/vision"
std::string fabric_key();                                 // "fabric": all links are one object
std::string cluster_key();                                // "cluster": its id, and what ids it has given out
std::string join_token_key(const std::string& id);        // "join-token/4f1c…"
std::string member_key(const std::string& name);          // "member/n1"
std::string past_use_key(const cluster::QueueUser& who);  // "used/research/vision ada"
std::string person_key(const people::Name& name);         // "person/ada"
std::string token_key(const people::TokenId& id);         // "token/1f09…"
std::string secret_key(const cluster::SecretId& id);      // "secret/person ada TOKEN", or of a queue
std::string service_key(const cluster::ServiceName& name);  // "service/chat"
std::string audit_key(std::uint64_t first);  // "audit/00000000000000000042": lines, from that one on
// Without what was asked for.
std::string encode(const cluster::Job& job);
std::string encode_asked(const cluster::JobSpec& spec);
std::string encode(const cluster::Node& node);
std::string encode(const cluster::Queue& queue);
std::string encode(const cluster::JoinToken& token);
std::string encode(const cluster::Member& member);
std::string encode(const cluster::Fabric& fabric);
std::string encode_cluster(const cluster::State& state);
std::string encode(const cluster::QueueUser& who, const cluster::PastUse& past);
std::string encode(const people::Person& person);
std::string encode(const people::Token& token);
std::string encode(const cluster::Secret& secret);
std::string encode(const cluster::Service& service);
// Adds one stored object to the state; they come in the order of their keys, and unknown keys are an error.
Result<> decode_into(cluster::State& state, std::string_view key, std::string_view bytes);

}  // namespace tutti::wire
