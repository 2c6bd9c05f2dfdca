// `tutti up`, `tutti down` and `tutti local`: a cluster on this machine.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/id.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/home.hpp"
#include "cli/home_lock.hpp"
#include "cli/local.hpp"
#include "cli/orderly_end.hpp"
#include "cli/terminal.hpp"
#include "node/devices/nvml/nvml.hpp"

namespace tutti::cli {
namespace {

constexpr auto nodes_time_max = std::chrono::seconds(60);
constexpr std::int64_t nodes_max = 512;
// To a courtesy: a controller that is stopped must not hold up its end.
constexpr Duration courtesy_time_max = 1s;

// Of the nodes that were asked for, how many the controller has heard of: of this very agent, because what it
// remembers of an earlier one counts as a node for a while.
std::size_t count_joined(const nlohmann::json& nodes, const std::map<std::string, pid_t>& agents) {
  return static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [&](const auto& node) {
    const auto agent = agents.find(node.at("name").template get<std::string>());
    return agent != agents.end() && node.at("state") != "lost" && node.value("agent_pid", 0) == agent->second;
  }));
}

void tell_of_idle(const nlohmann::json& nodes, const std::map<std::string, pid_t>& agents) {
  for (const auto& node : nodes) {
    const auto name = node.at("name").get<std::string>();
    const auto reason = node.value("reason", "");
    if (agents.contains(name) && node.at("state") == "drained")
      print_note("node " + name + " takes no work" + (reason.empty() ? "" : ": " + reason));
  }
}

// Until every one of these nodes is ready, or one of them never will be.
Result<> wait_for_nodes(const LocalCluster& local, const std::vector<std::string>& names) {
  auto cluster = Cluster::local();
  if (!cluster) return std::move(cluster).error();
  const auto give_up_at = std::chrono::steady_clock::now() + nodes_time_max;
  for (;;) {
    if (interrupted) return failed("interrupted");
    auto document = cluster->nodes();
    if (!document) return std::move(document).error();
    std::map<std::string, pid_t> agents;
    for (const auto& name : names) {
      const auto agent = local.agent_of(name);
      if (!agent) return local.ended("node-" + name, "it ended instead of getting ready");
      agents.emplace(name, *agent);
    }
    const auto& nodes = document->at("nodes");
    const std::size_t ready = count_joined(nodes, agents);
    if (ready == names.size()) {
      tell_of_idle(nodes, agents);
      return {};
    }
    if (std::chrono::steady_clock::now() > give_up_at) {
      return failed(std::to_string(ready) + " of " + std::to_string(names.size()) + " nodes are ready")
          .remedy("the logs are in " + home_folder() + "/logs");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Other commands obey them, and would not find the cluster that was just started.
void tell_of_variables() {
  std::string set;
  for (const char* name : {"TUTTI_ADDR", "TUTTI_TOKEN_FILE", "TUTTI_CA_FILE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') set += (set.empty() ? "" : " ") + std::string(name);
  }
  if (!set.empty())
    print_note("commands still go where " + set + " says; `unset " + set + "` for this cluster");
}

std::string pids_of(const std::vector<Stray>& strays) {
  std::string text;
  for (const auto& stray : strays)
    text += (text.empty() ? "" : ", ") + stray.part + " " + std::to_string(stray.process.pid);
  return text;
}

class Up final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("nodes", nodes_, "how many nodes (default: 1)", {.min = 1, .max = nodes_max});
    flags.add("gpus", gpus_,
              "fake GPUs a node (default: the real ones on the first node if there are any, else 8)",
              {.min = 0, .max = 64});
    flags.add("gpu-model", model_, "the model of the fake GPUs (default: H100)");
    flags.add("accept-older-store", accept_older_store_,
              "start though the store is older than what was committed last; what is missing is forgotten");
  }

  Result<int> run() override {
    const std::string home = home_folder();
    LocalCluster local(home);
    // Before anything is written there, the lock too.
    if (auto fine = was_locked(home) ? Result<>() : check_home(home); !fine)
      return std::move(fine).error().within("up");
    const auto lock = HomeLock::take(home);
    if (!lock) return Error(lock.error()).within("up");
    if (auto fine = check_home(home); !fine) return std::move(fine).error().within("up");
    if (auto fine = check_no_copy(home); !fine) return std::move(fine).error().within("up");
    if (auto fine = local.check_holders(); !fine) return std::move(fine).error().within("up");
    if (local.running() && !local.has_gateway()) return bring_gateway_back(local);
    if (local.running()) {
      return failed("a local cluster runs already at " + local.address())
          .within("up")
          .remedy("`tutti down` ends it; TUTTI_HOME keeps another one apart");
    }
    if (const auto strays = local.strays(HomeLoss::removed); !strays.empty()) {
      return failed("processes of a cluster run on whose home, " + home + ", was removed: " + pids_of(strays))
          .within("up")
          .remedy("`tutti down` ends them; TUTTI_HOME keeps another cluster apart");
    }
    if (const auto living = local.living_nodes(); !living.empty() && !local.address().empty())
      return bring_controller_back(local, living);
    if (auto stopped = local.stop(); !stopped)  // what a crash may have left
      return std::move(stopped).error().within("up");
    if (auto marked = mark_home(home); !marked) return std::move(marked).error().within("up");
    const OrderlyEnd orderly_end;
    const auto started = start_all(local);
    if (!started) return take_back(local, started.error());
    std::printf("%zu node%s ready at %s; `tutti nodes` shows them, `tutti down` ends them\n", *started,
                *started == 1 ? "" : "s", local.address().c_str());
    tell_of_variables();
    return exit_success;
  }

 private:
  // Nothing of a cluster that did not come up stays behind.
  static Result<int> take_back(LocalCluster& local, const Error& why) {
    const auto stopped = local.stop();
    if (!interrupted) return Error(why).within("up");
    if (!stopped)
      return Error(stopped.error()).within("up : interrupted").remedy("`tutti down` ends what still runs");
    print_note("up : interrupted; what it had started is ended");
    return exit_interrupted;
  }

  static Result<> check_home(const std::string& home) {
    const auto kind = kind_of_home(home);
    if (!kind) return kind.error();
    if (*kind != HomeKind::foreign) return {};
    return failed("there are other things in the folder " + home)
        .remedy("the cluster needs a folder of its own, such as TUTTI_HOME=" + home + "/tutti");
  }

  // How many nodes there are now.
  Result<std::size_t> start_all(LocalCluster& local) const {
    if (auto started = local.start_controller("127.0.0.1:0", accept_older_store_); !started)
      return std::move(started).error();
    if (auto started = local.start_gateway(); !started) return std::move(started).error();
    std::vector<std::string> names;
    const bool real = gpus_ < 0 && model_.empty() && !devices::find_nvml().inventory.devices.empty();
    for (const std::int64_t at : numbers_of_nodes(local)) {
      if (interrupted) return failed("interrupted");
      names.push_back("n" + std::to_string(at));
      if (auto started = local.start_node(names.back(), agent_flags(real, at)); !started)
        return std::move(started).error();
    }
    if (auto ready = wait_for_nodes(local, names); !ready) return std::move(ready).error();
    if (auto ready = local.wait_for_gateway(); !ready) return std::move(ready).error();
    return names.size();
  }

  // Its agents know it by its address, and their ranks have not noticed that it was gone.
  Result<int> bring_controller_back(LocalCluster& local, const std::vector<std::string>& living) const {
    if (auto started = local.start_controller(local.address(), accept_older_store_); !started)
      return std::move(started).error().within("up").remedy(
          "`tutti down` ends the nodes that run on without it, and their jobs");
    if (!local.has_gateway()) {
      auto started = local.start_gateway();
      if (started) started = local.wait_for_gateway();
      if (!started) return std::move(started).error().within("up");
    }
    if (auto ready = wait_for_nodes(local, living); !ready) return std::move(ready).error().within("up");
    std::printf("the controller was gone and is back at %s, with the %zu node%s that ran on\n",
                local.address().c_str(), living.size(), living.size() == 1 ? "" : "s");
    tell_of_variables();
    return exit_success;
  }

  // Whoever asks a service finds it where it was.
  static Result<int> bring_gateway_back(LocalCluster& local) {
    auto started = local.start_gateway();
    if (started) started = local.wait_for_gateway();
    if (!started) return std::move(started).error().within("up");
    std::printf("the gateway was gone and is back at %s\n", local.gateway_address().c_str());
    tell_of_variables();
    return exit_success;
  }

  // A node of before that stayed away would count as lost, and its jobs as failed.
  std::vector<std::int64_t> numbers_of_nodes(const LocalCluster& local) const {
    std::vector<std::int64_t> numbers;
    for (std::int64_t at = 1; at <= nodes_; ++at) numbers.push_back(at);
    for (const auto& name : local.untold_nodes()) {
      const auto number = parse_id_number(std::string_view(name).substr(name.starts_with("n") ? 1 : 0));
      if (!number || name != "n" + std::to_string(*number) || std::cmp_less_equal(*number, nodes_) ||
          *number > nodes_max)
        continue;
      numbers.push_back(static_cast<std::int64_t>(*number));
      print_note("node " + name + " is started too: jobs that go on now were running there");
    }
    return numbers;
  }

  std::vector<std::string> agent_flags(bool real, std::int64_t at) const {
    std::vector<std::string> flags{"--location", "local/pod1/rack" + std::to_string((at - 1) / 8 + 1)};
    if (real && at == 1) return flags;
    const std::string count = std::to_string(real ? 0 : gpus_ < 0 ? 8 : gpus_);
    flags.insert(flags.end(), {"--fake-gpus", count + "x" + (model_.empty() ? "H100" : model_)});
    return flags;
  }

  std::int64_t nodes_ = 1;
  std::int64_t gpus_ = -1;
  std::string model_;
  bool accept_older_store_ = false;
};

class Down final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("clean", clean_,
              "remove all that it kept too: jobs, logs, and the checkpoints of jobs (TUTTI_CHECKPOINT_DIR)");
  }

  Result<int> run() override {
    const std::string home = home_folder();
    LocalCluster local(home);
    auto kind = kind_of_home(home);
    if (!kind) return end_what_is_found(local, home, kind.error());
    if (*kind != HomeKind::own && !was_locked(home)) return find_nothing_there(local, home, *kind);
    if (const auto fine = check_readable(home); !fine) return end_what_is_found(local, home, fine.error());
    const auto lock = HomeLock::take(home);
    if (!lock) return Error(lock.error()).within("down");
    kind = kind_of_home(home);
    if (!kind) return end_what_is_found(local, home, kind.error());
    if (*kind != HomeKind::own) return find_nothing_there(local, home, *kind);
    if (auto fine = local.check_holders(); !fine) return std::move(fine).error().within("down");
    if (local.running()) {
      tell_unfinished();
    } else if (!clean_ && local.living_nodes().empty()) {
      print_note("no cluster runs in " + home);
    }
    if (auto stopped = local.stop(); !stopped) return std::move(stopped).error().within("down");
    if (auto ended = end_strays(local, home); !ended) return std::move(ended).error().within("down");
    // Somebody may have started a part by hand meanwhile.
    if (auto fine = local.check_holders(); !fine) return std::move(fine).error().within("down");
    return clean_ ? clean(home) : Result<int>(exit_success);
  }

 private:
  // How many there were.
  static Result<std::size_t> end_strays(const LocalCluster& local, const std::string& home) {
    const auto strays = local.strays(HomeLoss::removed);
    if (strays.empty()) return std::size_t{0};
    print_note("ends what runs on of a cluster whose home, " + home + ", was removed: " + pids_of(strays));
    if (auto ended = local.end_strays(strays); !ended) return std::move(ended).error();
    return strays.size();
  }

  // Without the lock: two who end the same do each other no harm.
  static Result<int> end_what_is_found(const LocalCluster& local, const std::string& home, const Error& why) {
    const auto found = local.strays(HomeLoss::unreadable);
    const std::string again = "`tutti down` looks again when it can be read";
    if (found.empty()) return Error(why).within("down").remedy("no process of a cluster was found; " + again);
    print_note("ends what is found of the cluster in " + home +
               " by its processes, as not all of it can be read: " + pids_of(found));
    if (auto ended = local.end_strays(found); !ended) return std::move(ended).error().within("down");
    return Error(why).within("down").remedy("what was found by its processes is ended; " + again);
  }

  Result<int> find_nothing_there(const LocalCluster& local, const std::string& home, HomeKind kind) const {
    const auto ended = end_strays(local, home);
    if (!ended) return Error(ended.error()).within("down");
    return *ended > 0 && !clean_ ? Result<int>(exit_success) : tell_nothing_there(home, kind);
  }

  Result<int> tell_nothing_there(const std::string& home, HomeKind kind) const {
    if (clean_ && kind == HomeKind::foreign)
      return failed("`tutti up` never made a cluster in " + home + ", so nothing is removed there")
          .within("down --clean")
          .remedy("TUTTI_HOME names the folder of the cluster that is meant");
    print_note("there is no cluster in " + home);
    return exit_success;
  }

  static Result<int> clean(const std::string& home) {
    std::error_code unknown;
    const std::string checkpoints = home + "/checkpoints";
    if (std::filesystem::is_directory(checkpoints, unknown) &&
        !std::filesystem::is_empty(checkpoints, unknown))
      print_note("the checkpoints of its jobs in " + checkpoints + " are removed too");
    const auto left = clean_home(home);
    if (left.empty()) return exit_success;
    std::string all;
    for (const auto& what : left) all += (all.empty() ? "" : "; ") + what;
    return failed("not all could be removed: " + all)
        .within("down --clean")
        .remedy("remove it yourself, or ask whoever owns it");
  }

  void tell_unfinished() const {
    auto cluster = Cluster::local();
    if (!cluster) return;
    const auto answer = cluster->client().request("GET", "/api/v1/status", "", courtesy_time_max);
    const auto status = nlohmann::json::parse(answer ? answer->body : "", nullptr, false);
    const std::int64_t unfinished = status.is_object() ? status.value("jobs_running", std::int64_t{0}) +
                                                             status.value("jobs_queued", std::int64_t{0})
                                                       : 0;
    if (unfinished == 0) return;
    const bool one = unfinished == 1;
    print_note(std::to_string(unfinished) + (one ? " job is" : " jobs are") + " unfinished; " +
               (clean_ ? std::string(one ? "it is" : "they are") + " ended and forgotten"
                       : std::string("the next `tutti up` goes on with ") + (one ? "it" : "them")));
  }

  bool clean_ = false;
};

class Local final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("ACTION", action_,
                   "kill-node: a power cut, kill -9 of the node with all its ranks; start-node: back again");
    flags.add_word("NODE", node_, "the node's name");
  }

  Result<int> run() override {
    LocalCluster local(home_folder());
    if (action_ != "kill-node" && action_ != "start-node") {
      return invalid("unknown action '" + action_ + "'")
          .within("local")
          .remedy("the actions are kill-node and start-node");
    }
    if (!was_locked(home_folder()))
      return failed("there is no cluster in " + home_folder())
          .within(action_)
          .remedy("`tutti up` starts one");
    const auto lock = HomeLock::take(home_folder());
    if (!lock) return Error(lock.error()).within(action_);
    auto done = action_ == "kill-node" ? local.kill_node(node_) : local.restart_node(node_);
    if (!done) return std::move(done).error().within(action_);
    if (action_ == "start-node") {
      if (auto ready = wait_for_nodes(local, {node_}); !ready)
        return std::move(ready).error().within(action_);
    }
    return exit_success;
  }

 private:
  std::string action_;
  std::string node_;
};

}  // namespace

std::unique_ptr<Command> make_up() { return std::make_unique<Up>(); }
std::unique_ptr<Command> make_down() { return std::make_unique<Down>(); }
std::unique_ptr<Command> make_local() { return std::make_unique<Local>(); }

}  // namespace tutti::cli
