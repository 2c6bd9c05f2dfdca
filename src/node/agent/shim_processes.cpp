#include "node/agent/shim_processes.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "node/agent/membership.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/log_segments.hpp"
#include "node/rank/process.hpp"

namespace tutti::agent {
namespace {

using cluster::RankState;
using cluster::RankStatus;

constexpr std::size_t detail_lines = 20;
constexpr std::size_t detail_bytes = 4096;
// For the end that a shim has left; then its own exit code has to do.
constexpr Duration end_read_max = 5s;
// What a shim may take beyond the grace period before its rank is ended over its head.
constexpr Duration shim_patience = 3s;
constexpr Duration force_every = 1s;
constexpr int forces_before_the_shim = 2;
constexpr Duration clear_every = 50ms;
constexpr std::size_t clear_looks_a_warning = 200;
// One rank that keeps the reader of its end waiting does not hold up the ends of others.
constexpr std::size_t end_threads_max = 4;
constexpr std::size_t node_name_bytes_max = 64;

// What ranks inherit from the agent; everything else comes from the job.
constexpr std::array<const char*, 10> inherited{"PATH",   "HOME", "USER",   "LOGNAME",         "LANG",
                                                "LC_ALL", "TZ",   "TMPDIR", "LD_LIBRARY_PATH", "SHELL"};

std::optional<RankKey> parse_key(const std::string& name) {
  const auto parts = split(name, '.');
  if (parts.size() != 3) return std::nullopt;
  std::array<std::uint64_t, 3> numbers{};
  for (std::size_t at = 0; at < 3; ++at) {
    const auto parsed = parse_id_number(parts[at]);
    if (!parsed) return std::nullopt;
    numbers[at] = *parsed;
  }
  return RankKey{cluster::JobId(numbers[0]), static_cast<std::int32_t>(numbers[1]),
                 static_cast<std::int32_t>(numbers[2])};
}

std::string attempt_name(cluster::JobId job, std::int32_t attempt) {
  return job.text() + "." + std::to_string(attempt);
}

// When something in the folder was made or removed last; zero if it cannot be known.
Instant changed_at(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return {};
  return Instant(std::chrono::seconds(status.st_mtim.tv_sec) +
                 std::chrono::nanoseconds(status.st_mtim.tv_nsec));
}

std::string marker(const std::string& folder) { return folder + "/acknowledged"; }

void set(std::map<std::string, std::string>& env, const std::string& entry) {
  const auto equals = entry.find('=');
  env[entry.substr(0, equals)] = equals == std::string::npos ? "" : entry.substr(equals + 1);
}

// What a reader of `tutti show` needs to see of a rank that failed.
std::string describe_failure(const std::string& folder, const rank::RankExit& exit) {
  std::string detail = exit.detail;
  // Who hung or died, by the judgement of all ranks, says more than what this one printed.
  if (const std::string verdict = rank::read_verdict(folder); !verdict.empty()) {
    detail += (detail.empty() ? "" : "; ") + verdict;
  }
  auto lines = rank::last_lines(folder, detail_lines, detail_bytes);
  if (lines && !lines->empty())
    detail += (detail.empty() ? "" : "; ") + ("last lines of its log:\n" + *lines);
  return std::string(cut_utf8(valid_utf8(detail), wire::detail_bytes_max));
}

// The end that the shim has left in the folder; nothing if there is none.
std::optional<RankStatus> end_in(const std::string& folder) {
  const auto exit = rank::read_exit(folder);
  if (!exit || !*exit) return std::nullopt;
  const std::int32_t code = (*exit)->exit_code;
  return RankStatus{RankState::exited, code, code == 0 ? "" : describe_failure(folder, **exit)};
}

}  // namespace

ShimProcesses::ShimProcesses(net::Loop& loop, ProcessOptions options, Shipped& shipped, Attic& attic,
                             Calls calls)
    : loop_(loop),
      options_(std::move(options)),
      folder_(options_.folder + "/ranks"),
      shipped_(shipped),
      attic_(attic),
      calls_(std::move(calls)),
      sights_(loop, 1),
      shared_(loop, 1),
      ends_(loop, end_threads_max),
      notes_(loop, 1),
      removals_(loop, 1) {}

std::string ShimProcesses::folder_of(const RankKey& key) const { return folder_ + "/" + key.text(); }

// Two agents of one machine must not share a name: who ends a cgroup ends all it holds. A folder has one
// agent.
std::string ShimProcesses::hold_name(const RankKey& key) const {
  return "tutti-" + options_.node.substr(0, node_name_bytes_max) + "-" + place_ + "-" + key.text();
}

bool ShimProcesses::lives(const RankKey& key) const {
  const auto shim = rank::read_shim(folder_of(key));
  return (shim && *shim && rank::is_alive(**shim)) || rank::Hold(hold_name(key)).exists();
}

// ---- what an earlier agent left

Result<std::map<RankKey, RankStatus>> ShimProcesses::adopt() {
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) return failed(failure.message()).within("cannot make " + folder_);
  struct stat place {};
  if (::stat(options_.folder.c_str(), &place) != 0)
    return failed_errno("cannot read " + options_.folder, errno);
  place_ = std::to_string(place.st_dev) + "." + std::to_string(place.st_ino);
  const rank::Hold trial("tutti-trial-" + place_);
  holds_ = trial.make();
  trial.remove();
  if (!holds_) {
    log::warning(
        "this agent may not make cgroups: processes of a rank that start sessions of their own are out of "
        "reach "
        "once its shim is killed, and those that become another user may be");
  }
  std::map<RankKey, RankStatus> found;
  std::vector<std::pair<Instant, std::string>> finished;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failure)) {
    const auto key = parse_key(entry.path().filename().string());
    if (!key) continue;
    std::error_code unknown;
    if (!entry.is_directory(unknown) || entry.is_symlink(unknown)) continue;
    if (std::filesystem::exists(marker(entry.path().string()), unknown) && !lives(*key)) {
      finished.emplace_back(changed_at(entry.path().string()), entry.path().string());
    } else {
      found[*key] = adopt_one(*key);
    }
  }
  std::sort(finished.begin(), finished.end());
  // First: what the attic removes from now on passes through the same folder.
  sweep(found);
  for (const auto& [time, path] : finished) attic_.put(path, time);
  return found;
}

// What an earlier agent was about to remove, and shipped folders that no rank uses any more.
void ShimProcesses::sweep(const std::map<RankKey, RankStatus>& found) {
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder + "/removed", failure))
    removals_.run([path = entry.path().string()]() -> Lane::Then {
      static_cast<void>(files::remove_folder(path));
      return {};
    });
  std::set<std::string> used;
  for (const auto& [key, status] : found) used.insert(attempt_name(key.job, key.attempt));
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder + "/work", failure)) {
    if (!used.contains(entry.path().filename().string())) remove_later(entry.path().string());
  }
}

RankStatus ShimProcesses::adopt_one(const RankKey& key) {
  const std::string folder = folder_of(key);
  const auto shim = rank::take_over(folder);
  const auto spec = rank::read_spec(folder);
  const rank::Hold hold(spec ? spec->cgroup : hold_name(key));
  if (shim && *shim && rank::is_alive(**shim) && !end_in(folder)) {
    Entry& entry = running_[key];
    entry.shim = **shim;
    entry.hold = hold;
    entry.grace = spec ? spec->grace : Duration::zero();
    watch(key, entry);
    rank::unmark_stopped(folder);
    log::info("adopted rank {} (pid {})", key.text(), entry.shim.pid);
    return {RankState::started};
  }
  Ended end{.shim = shim && *shim ? **shim : rank::ShimProcess(),
            .hold = hold,
            .end_known = true,
            .status = end_in(folder),
            .timer = {}};
  const bool recorded = end.status.has_value();
  if (!recorded)
    end.status = RankStatus{RankState::exited, 137, "it was gone when its agent came back", true};
  // What has done its work has done it; a peer that was shut down sooner may have made others fail.
  if (rank::is_stopped(folder) && end.status->exit_code != 0) {
    end.status = RankStatus{RankState::exited, 137, "it was shut down with its node"};
    end.status->stopped = true;
  }
  if ((recorded && !hold.exists()) || rank::kill_leftovers(end.hold, end.shim)) {
    end.hold.remove();
    return *end.status;
  }
  // Its shim has gone, the rank has not: it has ended when its last process has.
  ended_[key] = std::move(end);
  loop_.post([this, key] { clear(key); });
  return {RankState::started};
}

// ---- starts

void ShimProcesses::prepare(const wire::StartRanks& start) {
  shipped_.prepare(start.sync, attempt_name(start.job, start.attempt),
                   [this, job = start.job, attempt = start.attempt](const Result<std::string>& folder) {
                     loop_.post([this, job, attempt, folder] { calls_.prepared(job, attempt, folder); });
                   });
}

void ShimProcesses::release(cluster::JobId job, std::int32_t attempt) {
  remove_later(shipped_.path_of(attempt_name(job, attempt)));
  ports_.give_back(job, attempt);
}

void ShimProcesses::remember(const keeper::Membership& membership) {
  Result<> written;
  if (membership.cluster != membership_.cluster) {
    log::info("this node is of cluster {} now", membership.cluster);
    written = write_cluster(options_.folder, membership.cluster);
  }
  if (written) written = write_jobs_seen(options_.folder, membership.jobs_seen);
  if (!written) log::warning("{}", written.error().text());
  belong_to(membership);
}

Result<> ShimProcesses::put_aside(const std::string& cluster) {
  auto moved = put_ranks_aside(options_.folder, cluster);
  if (!moved) {
    log::error("the controller is of another cluster than this folder: {}", moved.error().text());
    return std::move(moved).error();
  }
  log::warning(
      "the controller is of another cluster than this folder: the ranks and logs of cluster {} are in {}",
      cluster, *moved);
  attic_.clear();
  return {};
}

Result<> ShimProcesses::take_port(const wire::StartRanks& attempt) {
  return ports_.take(attempt.job, attempt.attempt, attempt.master_port);
}

bool ShimProcesses::has_run(const RankKey& key) const {
  std::error_code ignored;
  return std::filesystem::exists(marker(folder_of(key)), ignored);
}

// Jobs of two clusters have the same numbers, and may share the folder for checkpoints.
std::string ShimProcesses::checkpoints_of(cluster::JobId job) const {
  const std::string cluster = membership_.cluster.empty() ? "" : "/" + membership_.cluster;
  return options_.checkpoints + cluster + "/" + job.text();
}

// Out of the way at once, so that a later agent does not take what is left of it for something whole.
void ShimProcesses::remove_later(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string target = options_.folder + "/removed/" + name + "." + std::to_string(::getpid()) + "." +
                             std::to_string(++removed_);
  removals_.run([path, target, parent = options_.folder + "/removed"]() -> Lane::Then {
    if (!files::make_folder(parent, 0700) || ::rename(path.c_str(), target.c_str()) != 0) return {};
    auto removed = files::remove_folder(target);
    if (removed) return {};
    return [why = removed.error().text()] { log::warning("{}", why); };
  });
}

Result<> ShimProcesses::start(const wire::StartRanks& attempt, const wire::StartRank& rank,
                              const std::string& workdir) {
  const RankKey key{attempt.job, attempt.attempt, rank.rank};
  const std::string folder = folder_of(key);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return failed("cannot make " + folder + ": " + failure.message());
  rank::RankSpec spec;
  spec.command = attempt.command;
  spec.env = environment(attempt, rank);
  spec.env.push_back("TUTTI_VERDICT_FILE=" + rank::verdict_path(folder));
  spec.env.push_back("TUTTI_PROGRESS_FILE=" + rank::progress_path(folder));
  spec.workdir = workdir.empty() ? "/" : workdir;
  spec.cgroup = hold_name(key);
  spec.cpus = attempt.cpus;
  spec.memory = attempt.memory;
  spec.grace = attempt.grace;
  spec.output = rank.output;
  spec.made_folder = checkpoints_of(attempt.job);
  if (auto written = rank::write_spec(folder, spec); !written) return written;
  auto pid = rank::start_shim(options_.tutti_program, folder);
  if (!pid) return std::move(pid).error();
  Entry& entry = running_[key];
  entry.ours = true;
  const auto process = rank::read_process(*pid);
  entry.shim = {*pid, process ? process->start_time : 0};
  entry.hold = rank::Hold(spec.cgroup);
  entry.grace = spec.grace;
  watch(key, entry);
  return {};
}

std::vector<std::string> ShimProcesses::environment(const wire::StartRanks& attempt,
                                                    const wire::StartRank& rank) const {
  std::map<std::string, std::string> env;
  for (const char* name : inherited) {
    if (const char* value = std::getenv(name); value != nullptr) env[name] = value;
  }
  env["TUTTI_CHECKPOINT_DIR"] = checkpoints_of(attempt.job);
  for (const auto& entry : attempt.env) set(env, entry);
  for (const auto& entry : rank.env) set(env, entry);
  std::vector<std::string> entries;
  entries.reserve(env.size());
  for (const auto& [name, value] : env) entries.push_back(name + "=" + value);
  return entries;
}

// ---- ends

void ShimProcesses::watch(const RankKey& key, Entry& entry) {
  auto pidfd = rank::open_pidfd(entry.shim.pid);
  if (!pidfd) {
    // It has ended between two lines of this program.
    loop_.post([this, key] { ended(key); });
    return;
  }
  entry.pidfd = std::move(*pidfd);
  entry.watch = loop_.when_readable(entry.pidfd.get(), [this, key] { ended(key); });
}

// By value: the watch that calls it goes with the entry.
void ShimProcesses::ended(RankKey key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Ended end{.shim = found->second.shim,
            .hold = found->second.hold,
            .forced = found->second.forced > 0,
            .status = {},
            .timer = {}};
  int status = 0;
  if (found->second.ours && ::waitpid(end.shim.pid, &status, WNOHANG) == end.shim.pid && WIFEXITED(status))
    end.shim_code = WEXITSTATUS(status);
  running_.erase(found);
  end.timer = loop_.after(end_read_max, [this, key] { end_read(key, std::nullopt); });
  ended_[key] = std::move(end);
  ends_.run([this, key, folder = folder_of(key)]() -> Lane::Then {
    auto left = end_in(folder);
    return [this, key, left = std::move(left)] { end_read(key, left); };
  });
}

void ShimProcesses::end_read(const RankKey& key, std::optional<RankStatus> status) {
  const auto found = ended_.find(key);
  if (found == ended_.end() || found->second.end_known) return;
  found->second.end_known = true;
  found->second.status = std::move(status);
  clear(key);
}

// A shim that has put the end on record has ended all there was. One that was killed has not: the rank has
// ended when the last of its processes has, because until then it may hold a device.
void ShimProcesses::clear(const RankKey& key) {
  const auto found = ended_.find(key);
  if (found == ended_.end()) return;
  Ended& end = found->second;
  const bool orderly = end.status && !end.status->vanished && !end.hold.exists();
  if (!orderly && !rank::kill_leftovers(end.hold, end.shim)) {
    if (++end.looks % clear_looks_a_warning == 0)
      log::warning("rank {} has been killed, and processes of it do not end", key.text());
    end.timer = loop_.after(clear_every, [this, key] { clear(key); });
    return;
  }
  end.hold.remove();
  const RankStatus status = verdict(end);
  ended_.erase(found);
  calls_.exited(key, status);
}

RankStatus ShimProcesses::verdict(const Ended& end) const {
  if (end.status) return *end.status;
  if (end.shim_code)
    return {RankState::exited, *end.shim_code, "its shim could not write its end to the disk of the node"};
  if (!end.forced) return {RankState::exited, 137, "its shim was killed", true};
  return {RankState::exited, 137,
          holds_
              ? "it was killed with its shim, which did not end it"
              : "it was killed with its shim, which did not end it; without cgroups on this node, processes "
                "that started sessions of their own may live on"};
}

void ShimProcesses::end(const RankKey& key, bool at_once) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Entry& entry = found->second;
  if (auto asked = rank::end_shim(entry.shim, at_once); !asked)
    log::warning("cannot end rank {}: {}", key.text(), asked.error().text());
  if (at_once && entry.forced == 0) entry.patience.reset();
  const Duration grace = at_once ? Duration::zero() : entry.grace;
  if (!entry.patience) entry.patience = loop_.after(grace + shim_patience, [this, key] { force(key); });
}

// The shim is stopped, held up by a disk, or cannot signal its rank. First the rank, so that a shim that can
// still speak puts the end on record; then the shim.
void ShimProcesses::force(const RankKey& key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Entry& entry = found->second;
  if (entry.forced == 0)
    log::warning("the shim of rank {} does not end it: the agent kills all its processes", key.text());
  static_cast<void>(rank::kill_leftovers(entry.hold, entry.shim));
  static_cast<void>(rank::end_shim(entry.shim, true));
  if (++entry.forced > forces_before_the_shim) rank::kill_shim(entry.shim);
  entry.patience = loop_.after(force_every, [this, key] { force(key); });
}

void ShimProcesses::forget(const RankKey& key) {
  const std::string folder = folder_of(key);
  notes_.run([this, folder]() -> Lane::Then {
    // A rank that never started has none.
    if (std::error_code ignored; !std::filesystem::exists(folder, ignored)) return {};
    const auto marked = files::replace_file(marker(folder), "");
    return [this, folder, why = marked ? "" : marked.error().text()] {
      if (!why.empty()) log::warning("{}", why);
      attic_.put(folder, now_on_the_wall());
    };
  });
}

// ---- what ranks leave in their folders

// One look at a time: a disk that does not answer gathers neither threads nor memory, and what was seen last
// holds.
void ShimProcesses::look(const std::vector<RankKey>& running) {
  if (shared_.under_way() == 0) {
    std::map<cluster::JobId, std::string> folders;
    for (const RankKey& key : running) folders[key.job] = checkpoints_of(key.job);
    shared_.run([this, folders = std::move(folders)]() -> Lane::Then {
      std::map<cluster::JobId, Instant> saved;
      for (const auto& [job, folder] : folders) saved[job] = changed_at(folder);
      return [this, saved = std::move(saved)] { saved_ = saved; };
    });
  }
  if (sights_.under_way() != 0) return;
  struct Rank {
    RankKey key;
    std::string folder;
    rank::ShimProcess shim;
  };
  std::vector<Rank> ranks;
  for (const RankKey& key : running) {
    const auto entry = running_.find(key);
    if (entry != running_.end()) ranks.push_back({key, folder_of(key), entry->second.shim});
  }
  sights_.run([this, ranks = std::move(ranks)]() -> Lane::Then {
    std::vector<std::pair<RankKey, std::string>> said;
    for (const Rank& rank : ranks) {
      // A shim that its rank has stopped keeps neither log nor time.
      rank::wake_shim(rank.shim);
      std::string sentence = rank::read_verdict(rank.folder);
      if (sentence.empty()) sentence = rank::read_progress(rank.folder);
      said.emplace_back(rank.key, std::move(sentence));
    }
    return [this, said = std::move(said)] {
      for (const auto& [key, sentence] : said) {
        const auto saved = saved_.find(key.job);
        calls_.seen(key, {sentence, saved == saved_.end() ? Instant() : saved->second});
      }
    };
  });
}

std::map<std::int32_t, std::string> log_folders(const std::string& ranks_folder, cluster::JobId job,
                                                std::int32_t attempt) {
  std::map<std::int32_t, std::string> folders;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(ranks_folder, failure)) {
    const auto key = parse_key(entry.path().filename().string());
    if (key && key->job == job && key->attempt == attempt) folders[key->rank] = entry.path().string();
  }
  return folders;
}

}  // namespace tutti::agent
