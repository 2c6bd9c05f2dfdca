// The agent: a node's part of the cluster. It joins, tells what the node has and what runs on it, starts and
// ends ranks, and keeps trying to reach the controller for as long as it lives.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/model.hpp"
#include "net/http/client.hpp"
#include "node/agent/attic.hpp"
#include "node/rank/account.hpp"

namespace tutti::agent {

struct AgentOptions {
  net::Target controller;
  std::string token;
  std::string name;
  std::string location;
  std::string address;              // where other nodes reach this one; "" lets the controller see for itself
  std::string folder;               // ranks, logs, shipped folders
  std::string checkpoints;          // for TUTTI_CHECKPOINT_DIR
  bool shared_checkpoints = false;  // that folder is the same on all nodes
  bool ranks_as_users = false;      // with the accounts of their users, and not with that of this process
  std::string users_file;           // which accounts those are, "" if they are called as the users
  rank::PeopleIds people = {};      // the numbers that those have
  std::string tutti_program;
  cluster::Inventory inventory;
  // The devices as they are now; null if they never change. Called on a thread of its own.
  std::function<std::vector<cluster::Device>()> look_at_devices;
  Bytes keep_logs = kept_logs_default;  // of ranks that have ended
  Duration keep_logs_age = kept_logs_age_default;
  std::size_t keep_logs_ranks = kept_logs_ranks_default;
  Duration keep_checkpoints_age{};  // of jobs that have ended; 0: for ever
};

// Runs until SIGTERM, SIGINT or SIGHUP; the ranks live on. `joined` is called each time the controller is
// reached.
Result<> run_agent(const AgentOptions& options, const std::function<void()>& joined);

}  // namespace tutti::agent
