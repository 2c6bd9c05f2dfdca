// Agents without nodes: connections to a real controller that say what agents say. They beat each second,
// start what they are told to and end it at once, as fast as messages travel. A thread of its own; all calls
// from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "net/http/client.hpp"

namespace tutti::bench {

struct FleetOptions {
  net::Target controller;
  std::string token;
  int agents = 1;
  int gpus = 8;
  int cpus = 64;
};

// The command of a job says what its ranks do: `true` and `false` end at once, everything else runs until it
// is ended.
class Fleet {
 public:
  explicit Fleet(FleetOptions options);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;
  ~Fleet();

  int connected() const { return connected_.load(); }
  // Ranks that they were told to start.
  std::uint64_t starts() const { return starts_.load(); }
  // The heartbeat whose answer took longest since this was last asked.
  double take_latest_answer_ms();

 private:
  class Agent;
  friend class Agent;

  void dial_next();
  void beat();

  FleetOptions options_;
  net::Loop loop_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::size_t dialed_ = 0;
  std::uint64_t begun_ns_ = 0;
  std::uint64_t beats_sent_ = 0;
  std::atomic<int> connected_{0};
  std::atomic<std::uint64_t> starts_{0};
  std::atomic<std::int64_t> latest_answer_ns_{0};
  std::shared_ptr<net::Loop::Handle> beats_;
  std::thread thread_;
};

}  // namespace tutti::bench
