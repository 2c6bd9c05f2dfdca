#include "cli/local_ranks.hpp"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/files/files.hpp"
#include "base/time.hpp"
#include "node/agent/rank_start.hpp"
#include "node/rank/cgroups.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::cli {
namespace {

constexpr Duration look_again_after = 5ms;

std::string ranks_of(const LocalNode& node) { return node.folder + "/ranks"; }

// A rank may have put a link in place of its own: that is followed nowhere.
std::vector<std::string> rank_folders(const LocalNode& node) {
  std::vector<std::string> folders;
  const auto names = files::list_folder(ranks_of(node));
  if (!names || !*names) return folders;
  for (const auto& name : **names) {
    std::string folder = ranks_of(node) + "/" + name;
    if (rank::is_own_folder(folder)) folders.push_back(std::move(folder));
  }
  return folders;
}

struct LivingRank {
  rank::ShimProcess shim;
  rank::Hold hold;
};

// As their folders tell, and as the processes of this machine do.
std::vector<LivingRank> living_ranks(const std::vector<LocalNode>& nodes, const std::string& above) {
  std::vector<LivingRank> living;
  for (const auto& node : nodes) {
    const auto prefix = rank::cgroup_prefix(node.name, node.folder);
    for (const auto& folder : rank_folders(node)) {
      auto shim = rank::take_over(folder);
      if (!shim || !*shim) continue;
      // The one that is will be found by its words.
      if (rank::is_alive(**shim) && rank::is_anothers(**shim, folder)) **shim = {};
      // By its folder's name, as the agent has named it: what lies in the folder is in the rank's hands.
      const rank::Hold hold(prefix ? *prefix + std::filesystem::path(folder).filename().string() : "");
      if (rank::is_alive(**shim) || hold.exists()) living.push_back({**shim, hold});
    }
  }
  for (const auto& shim : rank::shims_below(above)) {
    const bool known =
        std::any_of(living.begin(), living.end(), [&](const LivingRank& rank) { return rank.shim == shim; });
    if (!known) living.push_back({shim, rank::Hold("")});
  }
  return living;
}

void signal_shim(const rank::ShimProcess& shim, int signal) {
  if (rank::is_alive(shim)) ::kill(shim.pid, signal);
}

// What is left of ranks whose folders say nothing of them any more.
bool clear_cgroups(const std::vector<LocalNode>& nodes) {
  bool all = true;
  for (const auto& node : nodes) {
    const auto prefix = rank::cgroup_prefix(node.name, node.folder);
    const auto nobody = [](const std::string&) { return false; };
    if (prefix) all = rank::sweep_cgroups(*prefix, nobody, Duration::zero()) && all;
  }
  return all;
}

// A cgroup that is empty and cannot be removed does no harm.
bool holds_somebody(const LocalNode& node) {
  const auto prefix = rank::cgroup_prefix(node.name, node.folder);
  if (!prefix) return false;
  const auto cgroups = rank::cgroups_of(*prefix);
  return std::any_of(cgroups.begin(), cgroups.end(),
                     [](const rank::RankCgroup& cgroup) { return !rank::Hold(cgroup.name).empty(); });
}

}  // namespace

void mark_ranks_stopped(const LocalNode& node) {
  for (const auto& folder : rank_folders(node)) {
    const auto exit = rank::read_exit(folder);
    if (exit && !*exit) static_cast<void>(rank::mark_stopped(folder));
  }
}

void mark_rank_stopped(const rank::ShimProcess& shim) {
  const auto words = rank::words_of(shim.pid);
  if (!words || words->size() < 3) return;
  const auto held = rank::held_folder(shim.pid, std::filesystem::path((*words)[2]).filename().string());
  if (!held.empty()) static_cast<void>(rank::mark_stopped(held.string()));
}

// Ranks first: one without its shim can still be found, as a descendant, before the shim is gone. They end as
// zombies of the stopped shim, which are not counted. Somebody else's process may not be killed.
Result<> kill_ranks(const std::vector<LocalNode>& nodes, const std::string& above,
                    std::chrono::steady_clock::time_point give_up_at) {
  const auto in_time = [&] { return std::chrono::steady_clock::now() < give_up_at; };
  const auto ranks = living_ranks(nodes, above);
  for (const auto& rank : ranks) signal_shim(rank.shim, SIGSTOP);
  for (const auto& rank : ranks) {
    while (!rank::kill_leftovers(rank.hold, rank.shim) && in_time())
      std::this_thread::sleep_for(look_again_after);
  }
  for (const auto& rank : ranks) signal_shim(rank.shim, SIGKILL);
  for (;;) {
    const bool cleared = clear_cgroups(nodes);
    const auto shims = rank::shims_below(above);
    for (const auto& shim : shims) signal_shim(shim, SIGKILL);
    if (cleared && shims.empty()) return {};
    if (!in_time()) break;
    std::this_thread::sleep_for(look_again_after);
  }
  if (rank::shims_below(above).empty() && std::none_of(nodes.begin(), nodes.end(), holds_somebody)) return {};
  return failed("not all ranks could be ended")
      .within(above)
      .remedy("they may be somebody else's, or wait for a disk or a device: end them, and do it again");
}

bool is_of_their_ranks(pid_t pid, const std::vector<LocalNode>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [pid](const LocalNode& node) {
    return rank::is_of_ranks_of(pid, node.name, node.folder);
  });
}

bool has_untold_ranks(const LocalNode& node) {
  const auto folders = rank_folders(node);
  return std::any_of(folders.begin(), folders.end(), [](const std::string& folder) {
    std::error_code unknown;
    return !std::filesystem::exists(agent::acknowledged_mark(folder), unknown);
  });
}

}  // namespace tutti::cli
