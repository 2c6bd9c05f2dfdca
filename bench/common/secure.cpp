#include "common/secure.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/text.hpp"

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Duration end_patience = 20s;
constexpr Duration ready_patience = 60s;
constexpr const char* memory_disk = "/dev/shm";

bool has_ended(const support::Process& process) {
  const std::string stat = support::read_text("/proc/" + std::to_string(process.pid()) + "/stat");
  return stat.empty() || stat.find(") Z ") != std::string::npos;
}

// All are asked before the first is waited for.
void end_all(const std::vector<support::Process*>& processes) {
  for (const support::Process* process : processes) process->signal(SIGTERM);
  for (support::Process* process : processes) {
    if (!support::eventually([&] { return has_ended(*process); }, end_patience)) process->signal(SIGKILL);
    process->wait();
  }
}

// What an agent has on the disk in memory is named after its folder, and is there for its next start.
void clear_memory_of(const std::string& agent_folder) {
  struct stat place {};
  if (::stat(agent_folder.c_str(), &place) != 0) return;
  const std::string prefix =
      "tutti-" + std::to_string(place.st_dev) + "." + std::to_string(place.st_ino) + "-";
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(memory_disk, ignored))
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  for (const auto& path : found) fs::remove_all(path, ignored);
}

Result<json> read_json(Result<std::string> text, const std::string& what) {
  if (!text) return std::move(text).error();
  auto parsed = json::parse(*text, nullptr, false);
  if (parsed.is_discarded()) return failed("the answer is not JSON").within(what);
  return parsed;
}

}  // namespace

Result<std::unique_ptr<OpenFolder>> OpenFolder::make() {
  const std::string above = ::geteuid() == 0 ? "/var/lib" : fs::temp_directory_path().string();
  std::string path = above + "/tutti-bench-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    return failed_errno("a folder cannot be made there", errno).within(above);
  std::unique_ptr<OpenFolder> folder(new OpenFolder);
  folder->path_ = path;
  if (::chmod(path.c_str(), 0755) != 0)
    return failed_errno("it cannot be opened for others", errno).within(path);
  return folder;
}

OpenFolder::~OpenFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Result<std::unique_ptr<SecureCluster>> SecureCluster::start(SecureOptions options) {
  std::unique_ptr<SecureCluster> cluster(new SecureCluster(std::move(options)));
  if (auto begun = cluster->begin(); !begun) return std::move(begun).error().within("a cluster with TLS");
  return cluster;
}

SecureCluster::~SecureCluster() {
  std::vector<support::Process*> agents;
  for (const auto& agent : agents_) agents.push_back(agent.get());
  end_all(agents);
  if (controller_) end_all({controller_.get()});
  if (!options_.runs_as_user) return;
  for (int node = 1; node <= options_.nodes; ++node) clear_memory_of(agent_folder(node));
}

Result<> SecureCluster::begin() {
  std::error_code failure;
  fs::create_directories(file("nodes"), failure);
  if (failure) return failed(failure.message()).within(options_.folder);
  if (auto started = start_controller(); !started) return started;
  if (auto started = start_agents(); !started) return started;
  if (auto ready = wait_for_nodes(); !ready) return ready;
  return let_user_in();
}

Result<> SecureCluster::start_controller() {
  const std::string data = file("controller");
  if (auto made = run_command(LocalCluster::command({"controller", "init", "--data", data}), {}); !made)
    return std::move(made).error();
  const std::string ready = file("address");
  std::vector<std::string> words{"sh", "-c", "exec 9>\"$0\"; exec \"$@\"", ready};
  const auto controller = LocalCluster::command({"controller", "--data", data, "--listen", "127.0.0.1:0",
                                                 "--tls", "--ready-fd", "9", "--log-level", "info"});
  words.insert(words.end(), controller.begin(), controller.end());
  controller_ = std::make_unique<support::Process>(words, file("controller.log"));
  auto told = wait_until("the controller listens", ready_patience, 5ms, [&]() -> Result<bool> {
    if (has_ended(*controller_))
      return failed("it has ended: " + support::read_text(file("controller.log.err")));
    address_ = support::read_text(ready);
    return address_.ends_with("\n");
  });
  if (!told) return told;
  address_ = trim(address_);
  admin_env_ = {{"TUTTI_HOME", file("home")},
                {"TUTTI_ADDR", address_},
                {"TUTTI_TOKEN_FILE", data + "/admin.token"},
                {"TUTTI_CA_FILE", data + "/ca.pem"}};
  return {};
}

Result<> SecureCluster::start_agents() {
  const auto made = read_json(run_command(LocalCluster::command({"nodes", "token", "--json", "--uses",
                                                                 std::to_string(options_.nodes)}),
                                          admin_env_),
                              "tutti nodes token");
  if (!made) return made.error();
  const std::string token = file("join.token");
  support::write_text(token, made->value("token", "") + "\n");
  for (int node = 1; node <= options_.nodes; ++node) {
    const std::string name = "n" + std::to_string(node);
    const auto words = LocalCluster::command(
        {"agent", "join", address_, "--token-file", token, "--ca", made->value("ca", ""), "--name", name,
         "--data", agent_folder(node), "--isolation", options_.runs_as_user ? "user" : "none", "--location",
         "local/pod1/rack" + std::to_string((node - 1) / 8 + 1), "--fake-gpus",
         std::to_string(options_.gpus) + "xH100", "--log-level", "info"});
    agents_.push_back(std::make_unique<support::Process>(words, file(name + ".log")));
  }
  return {};
}

Result<> SecureCluster::wait_for_nodes() const {
  return wait_until("the nodes are ready", ready_patience, 50ms, [&]() -> Result<bool> {
    for (std::size_t at = 0; at < agents_.size(); ++at) {
      if (!has_ended(*agents_[at])) continue;
      return failed("an agent has ended: " +
                    support::read_text(file("n" + std::to_string(at + 1) + ".log.err")));
    }
    const auto nodes =
        read_json(run_command(LocalCluster::command({"nodes", "--json"}), admin_env_), "tutti nodes");
    if (!nodes) return nodes.error();
    int ready = 0;
    for (const auto& node : *nodes) ready += node.value("state", "") == "ready" ? 1 : 0;
    return ready == options_.nodes;
  });
}

Result<> SecureCluster::let_user_in() {
  const std::string token = file("user.token");
  for (const auto& words :
       {std::vector<std::string>{"users", "set", options_.user, "--role", "user:default"},
        std::vector<std::string>{"tokens", "create", "--user", options_.user, "--out", token}}) {
    if (auto done = run_command(LocalCluster::command(words), admin_env_); !done)
      return std::move(done).error();
  }
  user_env_ = admin_env_;
  user_env_["TUTTI_TOKEN_FILE"] = token;
  return {};
}

}  // namespace tutti::bench
