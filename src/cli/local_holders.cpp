// Who uses the folders of a local cluster: its own processes, or somebody of whom nothing is noted there.
#include <chrono>
#include <thread>

#include "cli/local.hpp"
#include "cli/part_note.hpp"
#include "control/controller/controller.hpp"
#include "node/agent/folder_lock.hpp"

namespace tutti::cli {
namespace {

// Of one that was killed, until it has let go of its locks.
constexpr Duration dying_time_max = 2s;
constexpr Duration look_for_holder_every = 20ms;

}  // namespace

std::optional<pid_t> LocalCluster::holder(const std::string& part) const {
  const std::string folder = folder_of(part);
  return part == "controller" ? controller::folder_holder(folder) : agent::FolderLock::holder_of(folder);
}

std::optional<rank::ShimProcess> LocalCluster::living(const std::string& part) const {
  const auto noted = read_note(note(part));
  if (!noted || !rank::is_alive(noted->process)) return std::nullopt;
  const bool ours =
      noted->place.empty() ? holder(part) == noted->process.pid : noted->place == place_of_home(home_);
  return ours ? std::optional(noted->process) : std::nullopt;
}

// Whoever was killed a moment ago may hold its lock for a little while, and whoever has just locked has not
// written its pid yet.
Result<> LocalCluster::check_holder(const std::string& part) const {
  const auto give_up_at = std::chrono::steady_clock::now() + dying_time_max;
  for (;; std::this_thread::sleep_for(look_for_holder_every)) {
    const auto pid = holder(part);
    if (!pid) return {};
    const auto ours = living(part);
    if (ours && ours->pid == *pid) return {};
    // It may lock what it likes there, and ends with the cluster.
    if (*pid > 0 && is_of_their_ranks(*pid, all_nodes())) return {};
    if (std::chrono::steady_clock::now() > give_up_at) return in_use(part, *pid);
  }
}

Error LocalCluster::in_use(const std::string& part, pid_t pid) const {
  const auto noted = read_note(note(part));
  // Its pid is one of there, and may be anybody's here.
  const bool elsewhere = noted && !noted->place.empty() && noted->place != place_of_home(home_) &&
                         (pid == 0 || pid == noted->process.pid);
  const std::string who =
      elsewhere ? "a process that was started on " + noted->host + ", and is not seen from here,"
      : pid > 0 ? "process " + std::to_string(pid) + ", which `tutti up` has not started,"
                : "a process of another host or container";
  return failed(who + " uses " + folder_of(part) + ": nothing there is ended or removed")
      .remedy("end it where it was started, or keep another cluster apart with TUTTI_HOME");
}

Result<> LocalCluster::check_holders() const {
  if (auto fine = check_holder("controller"); !fine) return fine;
  for (const auto& name : nodes()) {
    if (auto fine = check_holder("node-" + name); !fine) return fine;
  }
  return {};
}

}  // namespace tutti::cli
