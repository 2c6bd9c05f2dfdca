// What agents and controller say to each other, as plain data; protobuf stays inside this module. Decoding
// checks everything that the rest relies on, because the bytes come from outside. Pure functions: any thread.
//
// What is relied on: the messages of one connection arrive in the order in which they were sent (it is a TCP
// stream). An agent answers an end after the starts that were sent before it, and its Hello tells everything
// that it reported before. Between connections there is no order: only the newest one of a node is listened
// to (driver/speakers.hpp). A message that comes twice in a row changes nothing.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/step.hpp"

namespace tutti::wire {

constexpr std::size_t node_name_bytes_max = 128;
constexpr std::size_t detail_bytes_max = 8 << 10;
constexpr std::size_t illness_bytes_max = 1 << 10;
constexpr std::size_t identity_bytes_max = 64;
constexpr std::size_t machine_bytes_max = 256;
constexpr int ports_max = 1'024;  // kept free by one agent
// More jobs than any cluster has: an agent that has seen such a one is mistaken.
constexpr std::uint64_t jobs_seen_max = 1'000'000'000'000'000;
// What is longer goes in several messages: a connection carries frames of at most 16 MiB.
constexpr std::size_t message_bytes_max = 8 << 20;
constexpr std::size_t unread_bytes_max = 4 << 10;

// ---- agent to controller

// What has become of ranks, in the order in which it happened.
struct RankReports {
  std::vector<cluster::RankReport> ranks;
  Duration sent = {};  // on a clock of the agent's that only goes forward; zero: not said
  friend bool operator==(const RankReports&, const RankReports&) = default;
};

struct Heartbeat {
  std::string illness = {};  // as in Hello
  std::uint64_t echo = 0;    // sent back when the controller has taken note of it; 0: not asked for
  Bytes kept = {};           // what ranks that have ended left on the node
  Duration sent = {};        // as in RankReports
};
struct LogChunk {
  std::uint64_t stream = 0;
  std::int32_t rank = 0;
  std::string data;
  std::int32_t attempt = 0;
  std::uint64_t offset = 0;  // of the first byte in the rank's log
};
struct LogEnd {
  std::uint64_t stream = 0;
  std::int32_t attempt = 0;
  std::string unread = {};  // what could not be read and why
};
// The ports that the agent keeps free now, instead of those that it told before.
struct FreePorts {
  std::vector<std::int32_t> ports;
};
using AgentMessage = std::variant<cluster::Hello, Heartbeat, RankReports, LogChunk, LogEnd, FreePorts>;

std::string encode(const AgentMessage& message);
Result<AgentMessage> decode_agent_message(std::string_view bytes);

// ---- controller to agent

struct StartRank {
  std::int32_t rank = 0;
  std::vector<std::string> env;
  std::string output;
};
// The value of a secret. Nothing prints it.
struct SecretValue {
  std::string name;
  std::string value;
};
struct StartRanks {
  cluster::JobId job;
  std::int32_t attempt = 0;
  std::vector<std::string> command;
  std::vector<std::string> env;
  std::string workdir;
  std::string sync;
  std::int32_t cpus = 0;
  Bytes memory;
  Duration grace{};
  std::vector<StartRank> ranks;
  std::int32_t master_port = 0;  // of a gang whose rank 0 is among these; 0: of no concern here
  bool whole_gang = false;       // these are all ranks of the gang: the agent may choose another port
  bool has_saved = false;        // an earlier attempt had its folder for checkpoints
  std::string user;              // whose job it is
  std::vector<SecretValue> secrets = {};
};
struct EndRanks {
  cluster::JobId job;
  std::int32_t attempt = 0;
  std::vector<std::int32_t>
      ranks;             // whose ends are waited for; the end of one that never came is reported too
  bool at_once = false;  // without the grace period
};
struct ForgetRanks {
  cluster::JobId job;
  std::int32_t attempt = 0;
  bool job_ended = false;  // for good: there will be no other attempt
};
struct ReadLogs {
  std::uint64_t stream = 0;
  cluster::JobId job;
  std::int32_t attempt = 0;
  std::int32_t rank = -1;
  bool follow = false;
  std::int64_t tail_lines = 0;  // 0: from the beginning; -1: only what comes
  bool finish = false;
  std::int64_t credit_bytes = 0;
  std::int32_t ranks = 0;  // that have run there, and so have left logs; 0: not known
};
struct LogCredit {
  std::uint64_t stream = 0;
  std::int32_t attempt = 0;
  std::int64_t bytes = 0;
};
struct StopLogs {
  std::uint64_t stream = 0;
};
struct Resync {};
// The answer to a Hello: whose controller this is.
struct Welcome {
  std::string cluster;
};
// For the agent's log.
struct Notice {
  std::string text;
  bool refused = false;  // the node's name is somebody else's: try again, but slowly
};
// A heartbeat that asked for it was taken note of.
struct RenewCertificate {};
struct Echo {
  std::uint64_t echo = 0;
};
using ControllerMessage = std::variant<StartRanks, EndRanks, ForgetRanks, ReadLogs, StopLogs, Resync, Welcome,
                                       Notice, Echo, LogCredit, RenewCertificate>;

std::string encode(const ControllerMessage& message);
Result<ControllerMessage> decode_controller_message(std::string_view bytes);

// Of a cluster or of an agent's folder: a few letters and digits, which end up in the names of folders.
bool is_cluster_id(std::string_view id);

// Letters, digits, '.', '_' and '-': names end up in files, URLs and environments.
Result<> check_node_name(std::string_view name);

}  // namespace tutti::wire
