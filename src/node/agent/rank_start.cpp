#include "node/agent/rank_start.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/rights.hpp"
#include "base/text.hpp"
#include "node/agent/isolation.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/process.hpp"
#include "node/rank/secrets.hpp"

namespace tutti::agent {
namespace {

// What ranks inherit from the agent; everything else comes from the job.
constexpr std::array<const char*, 10> inherited{"PATH",   "HOME", "USER",   "LOGNAME",         "LANG",
                                                "LC_ALL", "TZ",   "TMPDIR", "LD_LIBRARY_PATH", "SHELL"};

// Of those what is the node's, and not its agent's own: for ranks that run as somebody else.
constexpr std::array<const char*, 5> inherited_by_others{"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"};
constexpr const char* usual_path = "/usr/local/bin:/usr/bin:/bin";
constexpr const char* devices_variable = "CUDA_VISIBLE_DEVICES=";

constexpr Duration look_again_after = 20ms;

void set(std::map<std::string, std::string>& env, const std::string& entry) {
  const auto equals = entry.find('=');
  env[entry.substr(0, equals)] = equals == std::string::npos ? "" : entry.substr(equals + 1);
}

// Without what is in the agent's own home, which they may not enter: a program that is nowhere would be told
// as one that they may not run.
std::string path_of_others(const std::string& path, const char* home) {
  std::string kept;
  for (const auto part : split(path, ':')) {
    const bool is_own = home != nullptr && std::string_view(home).size() > 1 && part.starts_with(home);
    if (part.starts_with('/') && !is_own) kept += (kept.empty() ? "" : ":") + std::string(part);
  }
  return kept.empty() ? usual_path : kept;
}

std::vector<std::string> environment(const RankOrder& order) {
  std::map<std::string, std::string> env;
  const auto inherit = [&env](const auto& names) {
    for (const char* name : names)
      if (const char* value = std::getenv(name); value != nullptr) env[name] = value;
  };
  if (order.isolation) {
    const rank::Account& account = order.isolation->account;
    inherit(inherited_by_others);
    env["PATH"] = path_of_others(env["PATH"], std::getenv("HOME"));
    env["HOME"] = account.home;
    env["USER"] = env["LOGNAME"] = account.name;
    env["SHELL"] = account.shell;
  } else {
    inherit(inherited);
  }
  env["TUTTI_CHECKPOINT_DIR"] = order.checkpoints;
  for (const auto& entry : order.attempt->env) set(env, entry);
  for (const auto& entry : order.attempt->ranks[order.rank].env) set(env, entry);
  const std::string own = order.isolation ? rank::said_folder(order.folder) : order.folder;
  env["TUTTI_VERDICT_FILE"] = rank::verdict_path(own);
  env["TUTTI_PROGRESS_FILE"] = rank::progress_path(own);
  std::vector<std::string> entries;
  entries.reserve(env.size());
  for (const auto& [name, value] : env) entries.push_back(name + "=" + value);
  return entries;
}

// As the controller says it, and not what the job has put in its own environment.
std::vector<std::string> gpus_of(const std::vector<std::string>& env) {
  std::vector<std::string> gpus;
  for (const std::string& entry : env) {
    if (!entry.starts_with(devices_variable)) continue;
    for (const auto gpu : split(std::string_view(entry).substr(std::strlen(devices_variable)), ','))
      if (!gpu.empty()) gpus.emplace_back(gpu);
  }
  return gpus;
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
  spec.secrets = static_cast<std::int32_t>(attempt.secrets.size());
  if (order.isolation) spec.isolation = *order.isolation;
  if (order.isolation) spec.isolation->gpus = gpus_of(attempt.ranks[order.rank].env);
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
Result<> make_place(const std::string& folder, const rank::Isolation* isolation) {
  const std::string ranks = std::filesystem::path(folder).parent_path().string();
  if (isolation == nullptr) {
    auto made = files::make_folder(ranks, 0777);
    if (made) made = files::make_folder(folder, 0777);
    return made;
  }
  auto made = make_passage(ranks);
  if (made) made = make_passage(folder);
  if (made) made = rank::make_said_folder(folder, isolation->account);
  return made;
}

// None if there are none.
Result<files::FileDescriptor> secrets_of(const wire::StartRanks& attempt) {
  if (attempt.secrets.empty()) return files::FileDescriptor();
  std::vector<rank::SecretFile> files;
  for (const wire::SecretValue& secret : attempt.secrets) files.push_back({secret.name, secret.value});
  auto packed = rank::pack_secrets(files);
  rank::forget(files);
  return packed;
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
  if (auto made = make_place(order.folder, order.isolation.get()); !made) return std::move(made).error();
  if (auto written = rank::write_spec(order.folder, spec_of(order)); !written)
    return std::move(written).error();
  const auto secrets = secrets_of(*order.attempt);
  if (!secrets) return secrets.error();
  if (!may_run()) return failed("nobody wants it any more");
  const auto pid = rank::start_shim(order.tutti_program, order.folder, secrets->get());
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
