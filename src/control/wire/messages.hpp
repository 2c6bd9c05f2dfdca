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

// ---- agent to controller

struct Heartbeat {
  Bytes kept;  // what ranks that have ended left on the node
};
struct LogChunk {
  std::uint64_t stream = 0;
  std::int32_t rank = 0;
  std::string data;
};
struct LogEnd {
  std::uint64_t stream = 0;
};
using AgentMessage = std::variant<cluster::Hello, Heartbeat, cluster::RankReport, LogChunk, LogEnd>;

std::string encode(const AgentMessage& message);
Result<AgentMessage> decode_agent_message(std::string_view bytes);

// ---- controller to agent

struct StartRank {
  std::int32_t rank = 0;
  std::vector<std::string> env;
  std::string output;
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
};
struct EndRanks {
  cluster::JobId job;
  std::int32_t attempt = 0;
  std::vector<std::int32_t>
      ranks;  // whose ends are waited for; the end of one that never came is reported too
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
  std::int64_t tail_lines = 0;
  bool finish = false;
};
struct StopLogs {
  std::uint64_t stream = 0;
};
struct Resync {};
using ControllerMessage = std::variant<StartRanks, EndRanks, ForgetRanks, ReadLogs, StopLogs, Resync>;

std::string encode(const ControllerMessage& message);
Result<ControllerMessage> decode_controller_message(std::string_view bytes);

// Letters, digits, '.', '_' and '-': names end up in files, URLs and environments.
Result<> check_node_name(std::string_view name);

}  // namespace tutti::wire
