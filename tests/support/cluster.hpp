// Clusters of a test's own, spoken to through the command line as a user would. Each one lives in a folder of
// its own and leaves no process behind: its end checks that.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/process.hpp"

namespace tutti::support {

// What a test can ask of a cluster, whoever started it.
class Cluster {
 public:
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // For the files of the test; the cluster's own are in home().
  const std::string& folder() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder() + "/" + name; }
  std::string home() const { return file("home"); }
  std::map<std::string, std::string>& env() { return env_; }

  // `tutti WORDS`.
  Finished tutti(const std::vector<std::string>& words) const;
  // The output of `tutti WORDS --json`; null if there is none.
  nlohmann::json json(std::vector<std::string> words) const;
  // `tutti run --detach FLAGS -- sh -c SCRIPT`: the job's id, "" if it was refused.
  std::string submit(std::vector<std::string> flags, const std::string& script) const;
  // `tutti run FLAGS -- sh -c SCRIPT`, to its end.
  Finished run(std::vector<std::string> flags, const std::string& script) const;
  // A command beside the test, its output in the file of this name.
  std::unique_ptr<Process> start(std::vector<std::string> words, const std::string& output) const;

  nlohmann::json job(const std::string& id) const { return json({"show", id}); }
  std::string state(const std::string& id) const { return job(id).value("state", ""); }
  // Waits until the job or node is in this state.
  bool becomes(const std::string& id, const std::string& wanted) const;
  bool node_becomes(const std::string& name, const std::string& wanted) const;
  // Waits for the job's end: its exit code.
  int wait(const std::string& id) const { return tutti({"wait", id}).exit_code; }
  std::string log(const std::string& id, int rank) const;

  nlohmann::json node(const std::string& name) const;
  pid_t agent_pid(const std::string& name) const { return node(name).value("agent_pid", 0); }
  // The shims and ranks on a node, and all that the ranks have started.
  std::vector<pid_t> ranks_on(const std::string& node) const;

 protected:
  Cluster();
  ~Cluster() = default;

  // Every process of the cluster is to be gone: what is not is a failure of the test, and killed.
  void expect_no_process() const;

 private:
  TempFolder folder_;
  std::map<std::string, std::string> env_;
};

// `tutti up` and `tutti down`.
class TestCluster final : public Cluster {
 public:
  explicit TestCluster(int nodes = 1, int gpus = 8);
  ~TestCluster();

  pid_t controller_pid() const;
};

struct PartsOptions {
  std::string data;                           // the controller's folder, "" for one in home()
  std::vector<std::string> controller_flags;  // besides --data and --listen
  std::vector<std::string> agent_flags;       // besides those of the join
  int gpus = 8;
  std::string isolation = "none";  // of agents
  std::string agent_folders = "";  // above those of agents, "" for one in home()
  std::string agent_limit = {};  // what a shell calls `ulimit` with before it becomes the agent, "" for none
};

// An address of the test's own for its ranks.
PartsOptions with_own_address();

// Controller and agents as children of the test, which can end and start each of them. The controller keeps
// its port.
class PartsCluster final : public Cluster {
 public:
  explicit PartsCluster(PartsOptions options = {});
  ~PartsCluster();

  std::string data() const;
  std::string address() const { return "127.0.0.1:" + port_; }
  int port() const { return std::stoi(port_); }
  std::string agent_folder(const std::string& name) const;
  Process& controller() { return *controller_; }
  Process& agent(const std::string& name) { return *agents_.at(name); }

  // Returns when its port is open. False if it ended instead. The flags are for this one start.
  bool start_controller(const std::vector<std::string>& flags = {});
  void kill_controller() { controller_.reset(); }
  // Returns when the node is ready. It finds the controller at `via`, if that is not empty.
  bool start_agent(const std::string& name, const std::string& via = "");
  // Of the agents that are started from now on.
  void set_gpus(int count) { options_.gpus = count; }
  void set_agent_limit(const std::string& limit) { options_.agent_limit = limit; }
  // kill -9 of the agent and of everything it started.
  void pull_plug(const std::string& node);

 private:
  PartsOptions options_;
  std::string port_ = "0";
  std::unique_ptr<Process> controller_;
  std::map<std::string, std::unique_ptr<Process>> agents_;
};

}  // namespace tutti::support
