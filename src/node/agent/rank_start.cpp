#include "node/agent/rank_start.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/rights.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/process.hpp"

namespace tutti::agent {
namespace {

// What ranks inherit from the agent; everything else comes from the job.
constexpr std::array<const char*, 10> inherited{"PATH",   "HOME", "USER",   "LOGNAME",         "LANG",
                                                "LC_ALL", "TZ",   "TMPDIR", "LD_LIBRARY_PATH", "SHELL"};

constexpr Duration look_again_after = 20ms;

void set(std::map<std::string, std::string>& env, const std::string& entry) {
  const auto equals = entry.find('=');
  env[entry.substr(0, equals)] = equals == std::string::npos ? "" : entry.substr(equals + 1);
}

std::vector<std::string> environment(const RankOrder& order) {
  std::map<std::string, std::string> env;
  for (const char* name : inherited) {
    if (const char* value = std::getenv(name); value != nullptr) env[name] = value;
  }
  env["TUTTI_CHECKPOINT_DIR"] = order.checkpoints;
  for (const auto& entry : order.attempt->env) set(env, entry);
  for (const auto& entry : order.attempt->ranks[order.rank].env) set(env, entry);
  env["TUTTI_VERDICT_FILE"] = rank::verdict_path(order.folder);
  env["TUTTI_PROGRESS_FILE"] = rank::progress_path(order.folder);
  std::vector<std::string> entries;
  entries.reserve(env.size());
  for (const auto& [name, value] : env) entries.push_back(name + "=" + value);
  return entries;
}

rank::RankSpec spec_of(const RankOrder& order) {
  const wire::StartRanks& attempt = *order.attempt;
  rank::RankSpec spec;
  spec.command = attempt.command;
  spec.env = environment(order);
  spec.workdir = order.workdir.empty() ? "/" : order.workdir;
  spec.cgroup = order.cgroup;
  spec.cpus = attempt.cpus;
  spec.memory = attempt.memory;
  spec.grace = attempt.grace;
  spec.output = attempt.ranks[order.rank].output;
  spec.checkpoints = order.checkpoints;
  spec.has_saved = order.shared_checkpoints && attempt.has_saved;
  spec.open_files = static_cast<std::int64_t>(order.open_files);
  spec.owner = attempt.user;
  return spec;
}

// What jobs have laid where the folder of a rank will be costs nobody a node: it goes, and where it cannot,
// the job has its start no more. Where it is now, "" if nothing was there.
Result<std::string> clear_place(const std::string& folder) {
  struct stat found {};
  if (::lstat(folder.c_str(), &found) != 0) return std::string();
  const std::filesystem::path path(folder);
  const std::string ranks = path.parent_path().string();
  if (S_ISDIR(found.st_mode) && rank::shims_by_folder(ranks).contains(folder))
    return unknown("a rank of its name runs here");
  static std::atomic<std::uint64_t> moved{0};
  const std::string removed = path.parent_path().parent_path().string() + "/removed";
  std::string target = removed + "/" + path.filename().string() + "." + std::to_string(::getpid()) +
                       ".place." + std::to_string(++moved);
  auto cleared = files::make_folder(removed, 0700);
  if (cleared) cleared = files::move_folder(folder, target);
  if (!cleared)
    return std::move(cleared)
        .error()
        .within("something is in the place of its folder")
        .as(ErrorCode::invalid);
  return target;
}

// Not what is above the folder of the agent, nor that one: a home that was removed would be back, with
// nothing in it that tells whose it is.
Result<> make_place(const std::string& folder) {
  const std::string ranks = std::filesystem::path(folder).parent_path().string();
  auto made = files::make_folder(ranks, 0777);
  if (made) made = files::make_folder(folder, 0777);
  return made;
}

// It is a child of this process, which nobody reaps before it is watched: who cannot be looked at for want of
// files can be later. When it began is what tells it from strangers: without that nobody would end it, and it
// would be taken for one that has gone. 0 of one that has.
std::uint64_t start_time_of(pid_t child) {
  for (;;) {
    if (const auto process = rank::read_process(child)) return process->start_time;
    if (::kill(child, 0) != 0 && errno == ESRCH) return 0;
    std::this_thread::sleep_for(look_again_after);
  }
}

}  // namespace

std::string acknowledged_mark(const std::string& rank_folder) { return rank_folder + "/acknowledged"; }

Result<StartedShim> start_rank(const RankOrder& order, const MayRun& may_run) {
  if (auto noted = order.notes->write_cluster(order.cluster); !noted) return std::move(noted).error();
  if (rank::is_own_folder(order.folder) && ::access(acknowledged_mark(order.folder).c_str(), F_OK) == 0)
    return unknown("it has run here before: the controller's store is older than that");
  auto cleared = clear_place(order.folder);
  if (!cleared) return std::move(cleared).error();
  if (auto made = make_place(order.folder); !made) return std::move(made).error();
  if (auto written = rank::write_spec(order.folder, spec_of(order)); !written)
    return std::move(written).error();
  if (!may_run()) return failed("nobody wants it any more");
  const auto pid = rank::start_shim(order.tutti_program, order.folder);
  if (!pid) return pid.error();
  const std::uint64_t start_time = start_time_of(*pid);
  auto pidfd = rank::open_pidfd(*pid);
  return StartedShim{.process = {*pid, start_time},
                     .pidfd = pidfd ? std::move(*pidfd) : files::FileDescriptor(),
                     .hold = rank::Hold(order.cgroup),
                     .grace = order.attempt->grace,
                     .in_its_place = *std::move(cleared)};
}

}  // namespace tutti::agent
