#include "support/cluster.hpp"

#include <signal.h>

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

namespace tutti::support {

// ---- Cluster

Cluster::Cluster() {
  env_["TUTTI_HOME"] = home();
  // What the person who runs the tests may have set.
  for (const char* name : {"TUTTI_ADDR", "TUTTI_TOKEN_FILE", "TUTTI_CA_FILE"}) env_[name] = "";
}

Finished Cluster::tutti(const std::vector<std::string>& words) const {
  std::vector<std::string> command{tutti_program};
  command.insert(command.end(), words.begin(), words.end());
  return support::run(command, {.env = env_, .stdout_to = ""});
}

nlohmann::json Cluster::json(std::vector<std::string> words) const {
  words.insert(words.begin() + 1, "--json");
  auto parsed = nlohmann::json::parse(tutti(words).out, nullptr, false);
  return parsed.is_discarded() ? nlohmann::json() : parsed;
}

std::string Cluster::submit(std::vector<std::string> flags, const std::string& script) const {
  flags.insert(flags.begin(), {"run", "--detach"});
  flags.insert(flags.end(), {"--", "sh", "-c", script});
  const auto lines = lines_of(tutti(flags).out);
  return lines.empty() ? "" : lines.front();
}

Finished Cluster::run(std::vector<std::string> flags, const std::string& script) const {
  flags.insert(flags.begin(), "run");
  flags.insert(flags.end(), {"--", "sh", "-c", script});
  return tutti(flags);
}

std::unique_ptr<Process> Cluster::start(std::vector<std::string> words, const std::string& output) const {
  words.insert(words.begin(), tutti_program);
  return std::make_unique<Process>(words, file(output), env_);
}

bool Cluster::becomes(const std::string& id, const std::string& wanted) const {
  return eventually([&] { return state(id) == wanted; });
}

bool Cluster::node_becomes(const std::string& name, const std::string& wanted) const {
  return eventually([&] { return node(name).value("state", "") == wanted; });
}

std::string Cluster::log(const std::string& id, int rank) const {
  return tutti({"logs", id, "--no-prefix", "--rank", std::to_string(rank)}).out;
}

nlohmann::json Cluster::node(const std::string& name) const {
  for (auto& node : json({"nodes"})) {
    if (node["name"] == name) return node;
  }
  return nlohmann::json::object();
}

std::vector<pid_t> Cluster::ranks_on(const std::string& node) const {
  std::vector<pid_t> found = processes_naming(home() + "/nodes/" + node + "/ranks/");
  for (const pid_t pid : processes_naming(home() + "/")) {
    const auto words = environment_of(pid);
    const bool here = std::find(words.begin(), words.end(), "TUTTI_NODE=" + node) != words.end();
    if (here && std::find(found.begin(), found.end(), pid) == found.end()) found.push_back(pid);
  }
  return found;
}

void Cluster::expect_no_process() const {
  EXPECT_TRUE(eventually([&] { return processes_naming(folder()).empty(); }, 15s));
  for (const pid_t pid : processes_naming(folder())) {
    ADD_FAILURE() << "left behind: " << pid << " " << read_text("/proc/" + std::to_string(pid) + "/cmdline");
    ::kill(pid, SIGKILL);
  }
}

// ---- TestCluster

TestCluster::TestCluster(int nodes, int gpus) {
  const auto up = tutti({"up", "--nodes", std::to_string(nodes), "--gpus", std::to_string(gpus)});
  EXPECT_EQ(up.exit_code, 0) << up.err;
}

TestCluster::~TestCluster() {
  const auto down = tutti({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  expect_no_process();
}

pid_t TestCluster::controller_pid() const { return std::stoi(read_text(home() + "/processes/controller")); }

// ---- PartsCluster

PartsOptions with_own_address() {
  const auto pid = static_cast<unsigned>(::getpid());
  PartsOptions options;
  options.agent_flags = {"--address", "127." + std::to_string(1 + (pid >> 16) % 200) + "." +
                                          std::to_string((pid >> 8) % 256) + "." + std::to_string(pid % 256)};
  return options;
}

PartsCluster::PartsCluster(PartsOptions options) : options_(std::move(options)) {
  std::filesystem::create_directories(home());
  const auto made = tutti({"controller", "init", "--data", data()});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  env()["TUTTI_TOKEN_FILE"] = data() + "/admin.token";
  EXPECT_TRUE(start_controller()) << read_text(file("controller.err"));
}

PartsCluster::~PartsCluster() {
  for (auto& [name, agent] : agents_) agent->signal(SIGTERM);
  for (auto& [name, agent] : agents_) agent->wait();
  if (controller_) {
    controller_->signal(SIGTERM);
    controller_->wait();
  }
  expect_no_process();
}

std::string PartsCluster::data() const {
  return options_.data.empty() ? home() + "/controller" : options_.data;
}

// The agent first, who would tell. A rank that has just begun makes processes while others are looked for.
void PartsCluster::pull_plug(const std::string& node) {
  agent(node).signal(SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const auto ranks = ranks_on(node);
    for (const pid_t pid : ranks) ::kill(pid, SIGKILL);
    return ranks.empty();
  }));
}

bool PartsCluster::start_controller(const std::vector<std::string>& flags) {
  const std::string ready = file("address");
  std::filesystem::remove(ready);
  std::vector<std::string> words{"sh", "-c", "exec 9>\"$0\"; exec \"$@\"", ready};
  words.insert(words.end(), {tutti_program, "controller", "--data", data(), "--listen", address(),
                             "--ready-fd", "9", "--log-level", "info"});
  words.insert(words.end(), options_.controller_flags.begin(), options_.controller_flags.end());
  words.insert(words.end(), flags.begin(), flags.end());
  controller_ = std::make_unique<Process>(words, file("controller"), env());
  std::string line;
  const bool told = eventually([&] {
    line = read_text(ready);
    const std::string stat = read_text("/proc/" + std::to_string(controller_->pid()) + "/stat");
    return line.ends_with("\n") || has(stat, ") Z ");
  });
  if (!told || !line.ends_with("\n")) return false;
  line.pop_back();
  const std::string port = line.substr(line.rfind(':') + 1);
  // A restarted controller keeps its port, and other threads of the test may be reading the environment.
  if (port == port_) return true;
  port_ = port;
  env()["TUTTI_ADDR"] = address();
  return true;
}

std::string PartsCluster::agent_folder(const std::string& name) const {
  return (options_.agent_folders.empty() ? home() + "/nodes" : options_.agent_folders) + "/" + name;
}

bool PartsCluster::start_agent(const std::string& name, const std::string& via) {
  std::vector<std::string> words{tutti_program,
                                 "agent",
                                 "--controller",
                                 via.empty() ? address() : via,
                                 "--join-token-file",
                                 data() + "/join.token",
                                 "--name",
                                 name,
                                 "--data",
                                 agent_folder(name),
                                 "--fake-gpus",
                                 std::to_string(options_.gpus) + "xH100",
                                 "--isolation",
                                 options_.isolation,
                                 "--log-level",
                                 "info"};
  words.insert(words.end(), options_.agent_flags.begin(), options_.agent_flags.end());
  if (!options_.agent_limit.empty())
    words.insert(words.begin(), {"sh", "-c", "ulimit $0 && exec \"$@\"", options_.agent_limit});
  auto& agent = agents_[name] = std::make_unique<Process>(words, file("agent-" + name), env());
  // The node of an agent that was killed a moment ago is still ready: this very agent must have joined.
  return eventually([&] {
    const auto shown = node(name);
    return shown.value("state", "") == "ready" && shown.value("agent_pid", 0) == agent->pid();
  });
}

}  // namespace tutti::support
