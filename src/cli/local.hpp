// A cluster on this machine, as processes: a controller and agents, each with a folder and a note of how it
// was started. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cli/local_ranks.hpp"

namespace tutti::cli {

class LocalCluster {
 public:
  explicit LocalCluster(std::string home) : home_(std::move(home)) {}

  bool running() const;
  std::string address() const;
  std::vector<std::string> nodes() const;
  // Those that have to come back, because the controller does not know yet how their ranks have ended.
  std::vector<std::string> untold_nodes() const;

  // Those whose agents run, whatever has become of the controller.
  std::vector<std::string> living_nodes() const;
  // Starts the controller and returns when its port is open.
  Result<> start_controller(const std::string& listen = "127.0.0.1:0");
  // `flags` are those of `tutti agent` beyond the ones that every local agent gets.
  Result<> start_node(const std::string& name, const std::vector<std::string>& flags);
  // As it was started before.
  Result<> restart_node(const std::string& name);
  // kill -9 of the agent and of every process of its ranks, as a power cut would.
  Result<> kill_node(const std::string& name);
  // Ends the controller, the agents and every rank, and can be repeated until all are gone. The next start
  // goes on with its jobs, and none has had a bad end.
  Result<> stop();

 private:
  std::string note(const std::string& part) const { return home_ + "/processes/" + part; }
  Result<> start(const std::string& part, const std::vector<std::string>& words, int ready_fd);
  LocalNode node(const std::string& name) const { return {name, home_ + "/nodes/" + name}; }
  Result<> end_parts(const std::vector<std::string>& parts) const;

  std::string home_;
};

}  // namespace tutti::cli
