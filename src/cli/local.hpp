// A cluster on this machine, as processes: a controller and agents, each with a folder and a note of how it
// was started, and a gateway, which has only the note. Used by the main thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "cli/local_ranks.hpp"
#include "cli/local_strays.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::cli {

class LocalCluster {
 public:
  explicit LocalCluster(std::string home) : home_(std::move(home)) {}

  // Nobody uses its folders but those processes that are noted here as its own: a folder may be a copy, or be
  // shared with another host or container, or somebody has started parts by hand. Comes before all that ends
  // or removes something.
  Result<> check_holders() const;

  bool running() const;
  std::string address() const;
  std::vector<std::string> nodes() const;
  // Those that have to come back, because the controller does not know yet how their ranks have ended.
  std::vector<std::string> untold_nodes() const;

  // Those whose agents run, whatever has become of the controller.
  std::vector<std::string> living_nodes() const;
  // The agent of a node, if it runs.
  std::optional<pid_t> agent_of(const std::string& name) const;
  // Starts the controller and returns when its port is open.
  Result<> start_controller(const std::string& listen, bool accept_older_store);
  // `flags` are those of `tutti agent` beyond the ones that every local agent gets.
  Result<> start_node(const std::string& name, const std::vector<std::string>& flags);
  // Starts the gateway, at the port that it had before if that is free; it listens when wait_for_gateway()
  // returns.
  Result<> start_gateway();
  Result<> wait_for_gateway();
  bool has_gateway() const { return living("gateway").has_value(); }
  std::string gateway_address() const;
  // As it was started before.
  Result<> restart_node(const std::string& name);
  // Why a part that was just started is not there, from its log.
  Error ended(const std::string& part, const std::string& how) const;
  // kill -9 of the agent and of every process of its ranks, as a power cut would.
  Result<> kill_node(const std::string& name);
  // What runs on of a cluster whose home was removed or cannot be read, and that nothing here tells of.
  std::vector<Stray> strays(HomeLoss loss) const { return strays_of(home_, loss); }
  // Ends them, as stop() does.
  Result<> end_strays(const std::vector<Stray>& strays) const;
  // Ends the controller, the agents and every rank, and can be repeated until all are gone. The next start
  // goes on with its jobs, and none has had a bad end.
  Result<> stop();

 private:
  std::string note(const std::string& part) const { return home_ + "/processes/" + part; }
  std::string gateway_file() const { return home_ + "/processes/gateway.address"; }
  std::string folder_of(const std::string& part) const {
    return part == "controller" ? home_ + "/controller" : node(part.substr(5)).folder;
  }
  // Who has locked the part's folder, as far as it can be told: 0 for somebody who is not seen from here.
  std::optional<pid_t> holder(const std::string& part) const;
  // The process of a part, if it is of this very folder, machine and pid namespace. Only such a one may be
  // signalled.
  std::optional<rank::ShimProcess> living(const std::string& part) const;
  Result<> check_holder(const std::string& part) const;
  Error in_use(const std::string& part, pid_t pid) const;
  std::vector<std::string> agent_words(const std::string& name) const;
  Result<> start(const std::string& part, const std::vector<std::string>& words, int ready_fd);
  LocalNode node(const std::string& name) const { return {name, home_ + "/nodes/" + name}; }
  std::vector<LocalNode> all_nodes() const;
  Result<> end_parts(const std::vector<std::string>& parts) const;

  std::string home_;
  files::FileDescriptor gateway_ready_;               // that it writes its address to
  std::map<std::string, std::uintmax_t> log_begins_;  // of the parts that were started: what is theirs
};

}  // namespace tutti::cli
