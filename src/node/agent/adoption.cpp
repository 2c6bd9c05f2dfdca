// What an earlier agent left: the part of ShimProcesses that takes it over.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "node/agent/left_rank.hpp"
#include "node/agent/rank_names.hpp"
#include "node/agent/shim_processes.hpp"
#include "node/rank/cgroups.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/process.hpp"

namespace tutti::agent {
namespace {

using cluster::RankState;
using cluster::RankStatus;

// An agent that starts waits so long for the next of the folders that earlier ranks have left: well below a
// lease.
constexpr Duration left_patience = 1s;
// Many at once, because those that do not answer keep their places.
constexpr std::size_t left_threads_max = 32;
constexpr Duration sweep_time_max = 2s;
constexpr Duration unfound_look_again_after = 20ms;

RankStatus over_long_ago() { return {RankState::exited, 137, "it was over long ago", true}; }

// A disk that fails says so, and ends nobody.
std::vector<std::string> names_in(const std::string& folder) {
  auto names = files::list_folder(folder);
  if (!names) log::warning("{}", names.error().text());
  return names && *names ? **std::move(names) : std::vector<std::string>();
}

}  // namespace

Result<std::map<RankKey, RankStatus>> ShimProcesses::adopt() {
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) return failed(failure.message()).within("cannot make " + folder_);
  auto prefix = rank::cgroup_prefix(options_.node, options_.folder);
  if (!prefix) return std::move(prefix).error();
  cgroup_prefix_ = *std::move(prefix);
  for (const auto& cgroup : rank::cgroups_of(cgroup_prefix_))
    if (!cgroup.name.starts_with(cgroup_prefix_)) cgroups_before_[cgroup.rank] = cgroup.name;
  const rank::Hold trial(cgroup_prefix_ + "trial");
  holds_ = trial.make();
  trial.remove();
  if (!holds_) {
    log::warning(
        "this agent may not make cgroups: processes of a rank that start sessions of their own are out of "
        "reach "
        "once its shim is killed, and those that become another user may be");
  }
  if (auto begun = begin_isolation(); !begun) return std::move(begun).error();
  std::map<RankKey, RankStatus> found;
  std::vector<std::pair<Instant, std::string>> finished;
  // Who cannot see them must not begin anew beside them.
  const auto listed = left_keys();
  if (!listed) return listed.error();
  const std::vector<RankKey>& keys = *listed;
  const auto reading = std::make_shared<LeftRanks>();
  if (!keys.empty()) left_ = std::make_unique<Lane>(loop_, LaneLimits{.threads_max = left_threads_max});
  for (const RankKey& key : keys) {
    left_->run(owner_of(key),
               [this, key, reading, folder = folder_of(key), hold = hold_name(key)]() -> Lane::Then {
                 const LeftRank left = read_left(folder, hold);
                 reading->put(key, left);
                 return [this, key, left] { read_late(key, left); };
               });
  }
  const auto read = reading->wait(keys.size(), left_patience);
  // The note of its shim and the mark that all is over lie in the folder of a rank: one that lives may have
  // put there that it does not.
  std::multimap<std::string, rank::ShimProcess> shims;
  if (!keys.empty()) shims = rank::shims_by_folder(folder_);
  const auto lives = [&](const RankKey& key) { return shims.contains(folder_of(key)); };
  // One that lives may have put there that a process of its own is its shim.
  const auto is_one_of = [&](const RankKey& key, const rank::ShimProcess& named) {
    const auto [first, last] = shims.equal_range(folder_of(key));
    return std::any_of(first, last, [&](const auto& shim) { return shim.second.pid == named.pid; });
  };
  for (const RankKey& key : keys) {
    const auto left = read.find(key);
    if (left == read.end()) {
      log::warning("the folder of rank {}, {}, does not answer", key.text(), folder_of(key));
      unread_[key];
      found[key] = {RankState::started};
      continue;
    }
    const LeftRank& said = left->second;
    const bool said_gone = said.over || rank::is_gone(said.shim);
    // Its start was cut short, or the rank, or want of files, keeps back which shim it has. An end on record
    // may be the rank's own word: as long as its shim lives it has not ended.
    const bool unknown = !said.over && !said.shim_known;
    if (unknown || (lives(key) && (said_gone || !is_one_of(key, said.shim)))) {
      unread_[key].left = said;
      found[key] = {RankState::started};
    } else if (said.over) {
      finished.emplace_back(said.changed_at, folder_of(key));
    } else {
      found[key] = adopt_one(key, said);
    }
  }
  if (!unread_.empty()) loop_.post([this] { look_for_shims(); });
  std::sort(finished.begin(), finished.end());
  // First: what the attic removes from now on passes through the same folder.
  sweep(found);
  // Of ranks whose folders are gone or say that all is over; before a rank of the same name can start.
  const auto lives_on = [&](const std::string& name) {
    const auto rank = parse_key(name) ? found.find(*parse_key(name)) : found.end();
    return rank != found.end() && rank->second.state == RankState::started;
  };
  if (!rank::sweep_cgroups(cgroup_prefix_, lives_on, sweep_time_max))
    log::warning("not all cgroups of earlier ranks, such as {}*, could be removed", cgroup_prefix_);
  end_unfound(found);
  for (const auto& [time, path] : finished) attic_.put(path, time);
  return found;
}

// By the names alone. A link is no folder of a rank: nobody follows it, and it goes.
Result<std::vector<RankKey>> ShimProcesses::left_keys() const {
  std::vector<RankKey> keys;
  const auto entries = rank_entries(folder_);
  if (!entries) return entries.error();
  for (const RankEntry& entry : *entries) {
    if (entry.is_link) ::unlink(entry.path.c_str());
    if (entry.is_folder) keys.push_back(entry.key);
  }
  return keys;
}

// What an earlier agent was about to remove, and shipped folders that no rank uses any more.
void ShimProcesses::sweep(const std::map<RankKey, RankStatus>& found) {
  removals_.remove_left();
  std::set<std::string> used;
  for (const auto& [key, status] : found) {
    used.insert(place_of(key.job, key.attempt));
    used.insert(attempt_name(key.job, key.attempt));  // as earlier versions called it
  }
  for (const std::string& name : names_in(options_.folder + "/work")) {
    if (!used.contains(name)) removals_.move_out(options_.folder + "/work/" + name);
  }
  for (const std::string& name : isolation_ ? isolation_->all_places() : std::vector<std::string>())
    if (!used.contains(name)) remove_places(name);
}

// Somebody, or the rank itself, has removed its folder: nobody answers for it any more, and what it uses is
// given out again. Where there are no cgroups its shim is all that tells of it. Who only calls himself so, in
// a folder that is not this agent's, is left alone.
void ShimProcesses::end_unfound(const std::map<RankKey, RankStatus>& found) const {
  const auto give_up_at = std::chrono::steady_clock::now() + sweep_time_max;
  std::set<pid_t> told;
  std::vector<rank::ShimProcess> killed;  // one that is about to go has no words any more
  for (;;) {
    bool all_gone = std::all_of(killed.begin(), killed.end(), rank::is_gone);
    for (const auto& [path, shim] : rank::shims_by_folder(folder_)) {
      const std::string name = std::filesystem::path(path).filename().string();
      const auto key = parse_key(name);
      if (!key || found.contains(*key)) continue;
      const auto held = rank::held_folder(shim.pid, name);
      std::error_code unknown;
      const bool is_here =
          !held.empty() && std::filesystem::equivalent(held / "../..", options_.folder, unknown);
      // A rank can move its folder out of this one.
      if (!is_here && !rank::began_in(shim.pid, options_.folder)) continue;
      all_gone = false;
      if (told.insert(shim.pid).second)
        log::warning("rank {} runs without its folder (pid {}), and is ended", name, shim.pid);
      if (!rank::kill_leftovers(rank::Hold(hold_name(*key)), shim)) continue;
      rank::kill_shim(shim);
      killed.push_back(shim);
    }
    if (all_gone) return;
    if (std::chrono::steady_clock::now() >= give_up_at) break;
    std::this_thread::sleep_for(unfound_look_again_after);
  }
  log::warning("not all ranks that run without their folders could be ended");
}

RankStatus ShimProcesses::adopt_one(const RankKey& key, const LeftRank& left) {
  const rank::Hold hold(left.cgroup);
  if (left.runs) {
    room_.start({key.job, key.attempt}, 1);
    Entry& entry = running_[key];
    entry.shim = left.shim;
    entry.hold = hold;
    entry.grace = left.grace.value_or(unknown_grace);
    entry.lived_at = now_steady();
    watch(key, entry, pidfd_of(entry.shim));
    log::info("adopted rank {} (pid {})", key.text(), entry.shim.pid);
    return {RankState::started};
  }
  Ended end{.shim = left.shim, .hold = hold, .end_known = true, .left = left.end, .timer = {}};
  const bool recorded = end.left.has_value();
  if (recorded) {
    end.left->status = without_witness(std::move(end.left->status));
  } else if (!left.shim_known && !hold.exists()) {
    // No fault of the job's, and nothing of it is lost.
    end.left = RankEnd{{RankState::exited, 126, "its start was cut short with its agent"}, {}};
    end.left->status.node_fault = end.left->status.blameless = true;
  } else {
    end.left = RankEnd{{RankState::exited, 137, "it was gone when its agent came back", true}, {}};
  }
  // What has done its work has done it; a peer that was shut down sooner may have made others fail.
  if (RankStatus& status = end.left->status; left.stopped && status.exit_code != 0) {
    status = RankStatus{RankState::exited, 137, "it was shut down with its node"};
    status.stopped = status.by_signal = true;
  }
  // Where cgroups hold ranks nobody is looked for by the session of a shim that has gone: its folder is the
  // rank's, and may name the session of somebody else.
  if (holds_ && rank::is_gone(end.shim)) end.shim = {};
  // A rank can put an end on record by itself, and live on: of its shim it cannot say so.
  const bool over = recorded && !hold.exists() && rank::is_gone(end.shim);
  const bool lives = !over && (!rank::is_gone(end.shim) || (hold.exists() && !hold.empty()));
  if (lives) end.lived_at = now_on_the_wall();
  if (over || rank::kill_leftovers(end.hold, end.shim)) {
    end.hold.remove();
    ended_at_[key] = believed_end(*end.left, {.heard_at = now_on_the_wall(), .lived_at = end.lived_at});
    return end.left->status;
  }
  // Its shim has gone, the rank has not: it has ended when its last process has.
  ended_[key] = std::move(end);
  loop_.post([this, key] { clear(key); });
  return {RankState::started};
}

// What its folder does not tell the processes of the machine do: a rank that runs is adopted.
void ShimProcesses::look_for_shims() {
  clears_.run([this, ranks_folder = folder_]() -> Lane::Then {
    return [this, shims = rank::shims_by_folder(ranks_folder)] {
      std::vector<RankKey> keys;
      for (const auto& [key, unread] : unread_) keys.push_back(key);
      for (const RankKey& key : keys) {
        const auto shim = shims.find(folder_of(key));
        looked_for(key, shim == shims.end() ? rank::ShimProcess() : shim->second);
      }
    };
  });
}

void ShimProcesses::looked_for(const RankKey& key, const rank::ShimProcess& shim) {
  const auto found = unread_.find(key);
  if (found == unread_.end()) return;
  if (shim.pid > 0) {
    const auto order = found->second.end_at_once;
    LeftRank left = found->second.left.value_or(LeftRank());
    unread_.erase(found);
    left.runs = true;
    left.shim = shim;
    left.cgroup = hold_name(key);
    adopt_one(key, left);
    if (order) end(key, *order);
    return;
  }
  // It has ended. How, its folder has told, or may still tell.
  if (const auto left = found->second.left) {
    unread_.erase(found);
    const RankStatus status = left->over ? over_long_ago() : adopt_one(key, *left);
    if (status.state == RankState::exited) calls_.exited(key, status);
    return;
  }
  found->second.timer = loop_.after(end_read_max, [this, key] {
    unread_.erase(key);
    Ended& end = ended_[key];
    end.hold = rank::Hold(hold_name(key));
    end.end_known = true;
    end.left = RankEnd{{RankState::exited, 137,
                        "it was gone when its agent came back, and its folder does not answer", true},
                       {}};
    clear(key);
  });
}

// What was read in time is nobody's surprise.
void ShimProcesses::read_late(const RankKey& key, const LeftRank& left) {
  if (left_ && left_->under_way() == 0) left_.reset();
  if (const auto running = running_.find(key); running != running_.end() && left.grace)
    running->second.grace = *left.grace;
  const auto found = unread_.find(key);
  if (found == unread_.end() || found->second.left) return;
  // Whether a shim of the rank lives, of which it does not tell, is being looked for, unless it was before.
  if (!left.runs && !found->second.timer) {
    found->second.left = left;
    return;
  }
  const auto order = found->second.end_at_once;
  unread_.erase(found);
  const RankStatus status = left.over ? over_long_ago() : adopt_one(key, left);
  if (status.state == RankState::exited) return calls_.exited(key, status);
  if (order) end(key, *order);
}

}  // namespace tutti::agent
